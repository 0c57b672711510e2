use super::*;

const NAME: OptionSpec = OptionSpec {
    name: "name",
    value: OptionValue::Text,
    default: OptionDefault::Required,
    help: "A name.",
};

fn plug_in(name: &'static str, schemes: &'static [&'static str], feature: &'static str) -> PlugIn {
    PlugIn {
        name,
        title: "Title",
        schemes,
        example: "x:",
        address: AddressForm::Bare,
        options: &[NAME],
        feature: Some(Feature {
            name: feature,
            needs: None,
        }),
        server: None,
    }
}

#[test]
fn a_scheme_that_leads_nowhere_names_the_fix() {
    let (one, two) = (
        plug_in("kafka", &["kafka"], "kafka"),
        plug_in("rabbitmq", &["amqp", "amqps"], "rabbitmq"),
    );
    let known = [(&one, false), (&two, true)];
    for (scheme, fix) in [
        (
            "kafka",
            Some("build it with `cargo build --features kafka`"),
        ),
        ("rabbitmq", Some("Title's scheme is `amqp:` or `amqps:`")),
        ("kafak", Some("did you mean `kafka:`?")),
        ("colour", None),
    ] {
        let said = PlugIn::no_such_scheme("sink", scheme, &known, "amqp, amqps");
        let reason = format!("this build has no sink `{scheme}`, it has amqp, amqps");
        let fix = fix.map(str::to_owned);
        assert_eq!(said, NoSuchScheme { reason, fix });
    }
}

#[test]
fn values_are_checked_and_not_repeated() {
    let duration = OptionValue::Duration {
        shortest_ms: 1,
        longest_ms: 1_000,
        range: "from 1ms to 1s",
        example: "5ms",
    };
    let bytes = OptionValue::Number {
        unit: "bytes",
        least: 1,
    };
    for (value, good, bad) in [
        (OptionValue::Word(&["a", "b"]), "b", "c"),
        (duration, "1s", "2s"),
        (duration, "1ms", "0ms"),
        (duration, "5ms", "5"),
        (duration, "5ms", "+5"),
        (bytes, "1", "0"),
        (bytes, "12", "12kB"),
        (OptionValue::FileMode, "640", "0440"),
        (OptionValue::FileMode, "0640", "0888"),
        (OptionValue::FileMode, "0640", "1777"),
        (OptionValue::FileMode, "0640", "+640"),
    ] {
        let option = OptionSpec { value, ..NAME };
        assert_eq!(option.check(good), Ok(()));
        let reason = option.check(bad).unwrap_err();
        assert!(reason.starts_with("`name` is "), "{reason}");
        assert!(!reason.contains(&format!("`{bad}`")), "{reason}");
    }
}

#[test]
fn the_nearest_name_is_near() {
    let names = ["lease", "publish_timeout", "poll_idle"];
    assert_eq!(nearest("leese", names), Some("lease"));
    assert_eq!(nearest("publish_time_out", names), Some("publish_timeout"));
    assert_eq!(nearest("colour", names), None);
    assert_eq!(nearest("b", ["a"]), None);
}

#[test]
fn an_error_repeats_plain_names_alone() {
    for plain in ["lease", "15s", "1.5", "a-b_c.D"] {
        assert_eq!(shown(plain), plain);
    }
    let long = "a".repeat(64);
    for other in [
        "",
        "amqp://u:p@h/",
        "amqp:u:p@h",
        "u%3Ap",
        "a b",
        "é",
        &long,
    ] {
        assert_eq!(shown(other), "…");
    }
}
