//! The row of the sink `http`.

use posthaste_engine::{
    AddressForm, Feature, FenceKind, KeyOrder, OptionDefault, OptionSpec, OptionValue, PlugIn,
    SinkMode,
};

use crate::descriptor::{SinkDescriptor, SinkSummary};

pub(crate) const HTTP: SinkDescriptor = SinkDescriptor {
    plug_in: PlugIn {
        name: "http",
        title: "HTTP webhooks",
        schemes: &["https", "http"],
        example: "https://HOST/PATH",
        address: AddressForm::Servers,
        options: &[
            FORMAT,
            SOURCE,
            SECRET,
            SECRET_HEADERS,
            SECRET_QUERY,
            REQUESTS,
            EVENT_BYTES_MAX,
            HEADER_BYTES_MAX,
            ALLOW_PRIVATE,
            PROXY,
            PROXY_PASSWORD,
            CA_FILE,
            CERT_FILE,
            KEY_FILE,
        ],
        feature: Some(Feature {
            name: "http",
            needs: None,
        }),
        server: Some("http"),
    },
    modes: &[SinkMode {
        name: "http",
        // Requests travel on connections of their own, and overtake each other.
        key_order: KeyOrder::OneAtATime,
        fence: FenceKind::Timing,
        single_lane: false,
        requests_max: Some(REQUESTS_DEFAULT),
        deduplication: None,
    }],
    summary: SinkSummary {
        accepted: "the endpoint has answered 2xx",
        order: "one event of a key at a time",
        id: "header `webhook-id`",
        fence: "time",
    },
    writes_to_stdout: false,
    open: None,
};

/// Each is a connection, and a worker of most receivers: few of them have more than this for one
/// sender.
const REQUESTS_DEFAULT: u32 = 16;

pub(crate) const FORMAT: OptionSpec = OptionSpec {
    name: "format",
    value: OptionValue::Word(&["binary", "structured", "raw"]),
    default: OptionDefault::Value("binary"),
    help: "How an event stands in a request: as a CloudEvent whose attributes are headers \
           (`binary`), as a CloudEvent that is one JSON object (`structured`), or with headers \
           that have the names of our other sinks (`raw`).",
};

pub(crate) const SOURCE: OptionSpec = OptionSpec {
    name: "source",
    value: OptionValue::Text,
    default: OptionDefault::Value("posthaste"),
    help: "The `source` of CloudEvents: a URI that names your service.",
};

pub(crate) const SECRET: OptionSpec = OptionSpec {
    name: "secret",
    value: OptionValue::Text,
    default: OptionDefault::Unset("requests are not signed"),
    help: "The secret of the signature, as `whsec_` and base64. Several, with commas between them, \
           sign each request several times, while receivers change to a new one.",
};

pub(crate) const SECRET_HEADERS: OptionSpec = OptionSpec {
    name: "secret_headers",
    value: OptionValue::Text,
    default: OptionDefault::Unset("none"),
    help: "Headers of each request, such as `Authorization: Bearer TOKEN`; between several stands \
           `%0A`. They are never shown.",
};

pub(crate) const SECRET_QUERY: OptionSpec = OptionSpec {
    name: "secret_query",
    value: OptionValue::Text,
    default: OptionDefault::Unset("none"),
    help: "The query of each request, such as `code%3DTOKEN`, with `&` as `%26`. It is never \
           shown.",
};

pub(crate) const REQUESTS: OptionSpec = OptionSpec {
    name: "requests",
    value: OptionValue::Number {
        unit: "requests",
        least: 1,
    },
    default: OptionDefault::Value("16"),
    help: "Requests under way at once, each on a connection of its own and of another key. At the \
           most 1024.",
};

pub(crate) const EVENT_BYTES_MAX: OptionSpec = OptionSpec {
    name: "max_event_bytes",
    value: OptionValue::Number {
        unit: "bytes",
        least: 1,
    },
    // nginx takes no larger body unless somebody says so.
    default: OptionDefault::Value("1048576"),
    help: "An event with a larger payload is rejected.",
};

pub(crate) const HEADER_BYTES_MAX: OptionSpec = OptionSpec {
    name: "max_header_bytes",
    value: OptionValue::Number {
        unit: "bytes",
        least: 1_024,
    },
    // nginx and Apache take lines of 8 KiB, Node takes 16 KiB in all.
    default: OptionDefault::Value("8192"),
    help: "An event whose request has more bytes of headers is rejected.",
};

pub(crate) const ALLOW_PRIVATE: OptionSpec = OptionSpec {
    name: "allow_private",
    value: OptionValue::Word(&["true", "false"]),
    default: OptionDefault::Value("false"),
    help: "Whether the endpoint may be at an address that is not of the public Internet, such as \
           `127.0.0.1`, `10.0.0.1` or `169.254.169.254`.",
};

pub(crate) const PROXY: OptionSpec = OptionSpec {
    name: "proxy",
    value: OptionValue::Text,
    default: OptionDefault::Unset("no proxy, whatever the environment says"),
    help: "The `HOST:PORT` of an HTTP proxy: a tunnel (`CONNECT`) with `https:`, else it forwards.",
};

pub(crate) const PROXY_PASSWORD: OptionSpec = OptionSpec {
    name: "proxy_password",
    value: OptionValue::Text,
    default: OptionDefault::Unset("none"),
    help: "The login at the proxy, as `USER:PASSWORD`.",
};

pub(crate) const CA_FILE: OptionSpec = OptionSpec {
    name: "ca_file",
    value: OptionValue::File,
    default: OptionDefault::Unset("the system's authorities"),
    help: "PEM file with the authorities to trust, with `https:`.",
};

pub(crate) const CERT_FILE: OptionSpec = OptionSpec {
    name: "cert_file",
    value: OptionValue::File,
    default: OptionDefault::Unset("none"),
    help: "PEM file with our certificate, for endpoints that ask for one.",
};

pub(crate) const KEY_FILE: OptionSpec = OptionSpec {
    name: "key_file",
    value: OptionValue::File,
    default: OptionDefault::Unset("none"),
    help: "PEM file with its key.",
};
