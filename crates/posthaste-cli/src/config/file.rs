//! The TOML file: `[relay]`, `[stores.NAME]`, `[destinations.NAME]`, `[[routes]]`.

use std::{ops::Range, path::Path};

use posthaste_engine::{Route, RouteAction, RouteMatch, Routes, Template, nearest, shown};
use toml::de::{DeTable, DeValue};

use super::{
    Destination, check_destination_name,
    report::{ConfigError, Source},
    section::Section,
    tuning::{self, DESTINATION_KEYS, DestinationTuning, RELAY_KEYS, RelayTuning},
};
use crate::secret::SecretUrl;

const ROUTE_KEYS: &[&str] = &[
    "topic", "type", "headers", "to", "drop", "attempts", "on_dead",
];

/// A file, read and checked.
#[derive(Debug, Default)]
pub(crate) struct FileConfig {
    pub(crate) store: Option<SecretUrl>,
    pub(super) destinations: Vec<Destination>,
    pub(super) routes: FileRoutes,
    pub(super) tuning: RelayTuning,
}

/// Routes with their places: whether the names in them exist is known only when flags have added
/// theirs.
#[derive(Debug, Default)]
pub(super) struct FileRoutes {
    source: Option<Source>,
    routes: Vec<(Route, Range<usize>)>,
}

impl FileConfig {
    /// Reads a file.
    ///
    /// # Errors
    /// The first thing in it that cannot be used, with file, line, caret and fix.
    pub(crate) fn read(path: &Path) -> Result<Self, ConfigError> {
        let name = SecretUrl::new(path.display().to_string()).to_string();
        let text = std::fs::read_to_string(path).map_err(|error| {
            ConfigError::plain(format!(
                "cannot read the configuration file {name}: {error}\nfix: correct the path of \
                 --config"
            ))
        })?;
        let folder = path.parent().unwrap_or(Path::new("")).to_owned();
        Self::parse(Source { name, folder, text })
    }

    pub(super) fn parse(source: Source) -> Result<Self, ConfigError> {
        let document = DeTable::parse(&source.text).map_err(|error| {
            let span = error.span().unwrap_or_default();
            let message = format!("not valid TOML: {}", error.message());
            source.error(&span, message, "correct the syntax; texts stand in quotes")
        })?;
        let root = Section::root(
            &source,
            &document,
            &["relay", "stores", "destinations", "routes"],
        )?;
        let tuning = match root.value("relay") {
            Some(value) => {
                let section = Section::open(&source, "[relay]".to_owned(), value, RELAY_KEYS)?;
                RelayTuning::read(&section)?
            }
            None => RelayTuning::default(),
        };
        let store = store(&source, &root)?;
        let destinations = root
            .tables("destinations")?
            .into_iter()
            .map(|(name, value)| destination(&source, name, value))
            .collect::<Result<_, _>>()?;
        let routes = root
            .array("routes")?
            .into_iter()
            .map(|value| Ok((route(&source, value)?, value.span())))
            .collect::<Result<_, _>>()?;
        drop(document);
        Ok(Self {
            store,
            destinations,
            routes: FileRoutes {
                source: Some(source),
                routes,
            },
            tuning,
        })
    }
}

fn store(source: &Source, root: &Section<'_, '_>) -> Result<Option<SecretUrl>, ConfigError> {
    let mut stores = root.tables("stores")?.into_iter();
    let Some((name, value)) = stores.next() else {
        return Ok(None);
    };
    if let Some((second, value)) = stores.next() {
        let (first, second) = (shown(&name), shown(&second));
        let message = format!("a second store, `{second}`: a relay reads one");
        let fix = format!("remove it, or run a relay of its own for it; the first is `{first}`");
        return Err(source.error(&value.span(), message, fix));
    }
    let section = Section::open(
        source,
        format!("[stores.{}]", shown(&name)),
        value,
        &["url"],
    )?;
    section.url("url").map(Some)
}

fn destination(
    source: &Source,
    name: String,
    value: &toml::Spanned<DeValue<'_>>,
) -> Result<Destination, ConfigError> {
    let heading = format!("[destinations.{}]", shown(&name));
    let section = Section::open(source, heading, value, DESTINATION_KEYS)?;
    if let Err(reason) = check_destination_name(&name) {
        let (message, fix) = reason.rsplit_once("; ").unwrap_or((&reason, "rename it"));
        return Err(source.error(&value.span(), message, fix));
    }
    let template = |text: &str| text.parse::<Template>().map_err(|error| error.to_string());
    let tuning = DestinationTuning::read(&section)?;
    if let Err(reason) = tuning.check() {
        let (message, fix) = reason
            .split_once("\nfix: ")
            .unwrap_or((&reason, "correct it"));
        return Err(section.error("backoff", message, fix));
    }
    Ok(Destination {
        url: section.url("url")?,
        start: section.parsed("start", tuning::start)?.unwrap_or_default(),
        topic: section.parsed("topic", template)?,
        key: section.parsed("key", template)?,
        tuning,
        name,
    })
}

fn route(source: &Source, value: &toml::Spanned<DeValue<'_>>) -> Result<Route, ConfigError> {
    let section = Section::open(source, "[[routes]]".to_owned(), value, ROUTE_KEYS)?;
    let to = section.texts("to")?;
    let action = match (to, section.flag("drop")?.unwrap_or(false)) {
        (Some(names), false) => RouteAction::To(names.into_iter().map(str::to_owned).collect()),
        (None, true) => RouteAction::Drop,
        (Some(_), true) => {
            let message = "a route either leads somewhere or drops";
            return Err(section.error("drop", message, "remove `to` or `drop`"));
        }
        (None, false) => {
            let message = "a route without an end";
            return Err(section.error("to", message, "add to = [\"NAME\"], or drop = true"));
        }
    };
    Ok(Route {
        matches: RouteMatch {
            topic: section.text("topic")?.map(str::to_owned),
            event_type: section.text("type")?.map(str::to_owned),
            headers: headers(&section)?,
        },
        action,
        attempts: section.integer("attempts", 1..=u32::MAX)?,
        on_dead: section.parsed("on_dead", tuning::on_dead)?,
    })
}

fn headers(section: &Section<'_, '_>) -> Result<Vec<(String, Option<String>)>, ConfigError> {
    let Some(value) = section.value("headers") else {
        return Ok(Vec::new());
    };
    let wrong = || {
        let fix = "write headers = { region = \"eu\" }, or = { region = true } for any value";
        section.error(
            "headers",
            "`headers` in [[routes]] must name headers and values",
            fix,
        )
    };
    let DeValue::Table(table) = value.get_ref() else {
        return Err(wrong());
    };
    table
        .iter()
        .map(|(name, value)| match value.get_ref() {
            DeValue::String(text) => Ok((name.get_ref().to_string(), Some(text.to_string()))),
            DeValue::Boolean(true) => Ok((name.get_ref().to_string(), None)),
            _ => Err(wrong()),
        })
        .collect()
}

impl FileRoutes {
    /// Compiles the routes, now that all destinations are known.
    pub(super) fn compile(self, destinations: &[Destination]) -> Result<Routes, ConfigError> {
        let Some(source) = self.source.filter(|_| !self.routes.is_empty()) else {
            return Ok(Routes::default());
        };
        let names = || {
            destinations
                .iter()
                .map(|destination| destination.name.as_str())
        };
        let mut unnamed: Vec<&str> = names().collect();
        for (route, span) in &self.routes {
            let RouteAction::To(to) = &route.action else {
                continue;
            };
            unnamed.retain(|name| !to.iter().any(|other| other == name));
            if let Some(wrong) = to.iter().find(|name| !names().any(|known| known == *name)) {
                let name = shown(wrong);
                let message = format!("this route leads to `{name}`, which is no destination");
                let fix = match nearest(wrong, names()) {
                    Some(near) => format!("did you mean `{near}`?"),
                    None => format!("add [destinations.{name}], or name one of those there are"),
                };
                return Err(source.error(span, message, fix));
            }
        }
        let (routes, spans): (Vec<_>, Vec<_>) = self.routes.into_iter().unzip();
        if let Some(name) = unnamed.first() {
            let message =
                format!("no route leads to the destination `{name}`: it would get nothing");
            let fix = format!("add a route with to = [\"{name}\"], or remove the destination");
            return Err(source.error(spans.last().unwrap_or(&(0..0)), message, fix));
        }
        Routes::new(routes).map_err(|error| {
            let span = spans.get(error.number - 1).cloned().unwrap_or_default();
            let (message, fix) = error
                .reason
                .rsplit_once("; ")
                .unwrap_or((&error.reason, "correct the route"));
            source.error(&span, message, fix)
        })
    }
}
