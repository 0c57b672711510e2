//! Every store and sink has its files, and the documents say what its row says.
//!
//! Tables in documents are written from the rows:
//! `POSTHASTE_WRITE_DOCS=1 cargo test -p posthaste-cli --all-features --test house`.

use std::{collections::BTreeSet, env, fs, path::Path};

use posthaste_engine::{OptionDefault, PlugIn};
use posthaste_sinks::{SINKS, SinkDescriptor};
use posthaste_stores::STORES;

use crate::{read, root};

const WRITE: &str = "POSTHASTE_WRITE_DOCS";

/// Both kinds of plug-in: the name of the kind in paths, and its rows.
fn kinds() -> [(&'static str, Vec<&'static PlugIn>); 2] {
    [
        ("sink", SINKS.iter().map(|sink| &sink.plug_in).collect()),
        ("store", STORES.iter().map(|store| &store.plug_in).collect()),
    ]
}

#[test]
fn names_and_schemes_belong_to_one_plug_in() {
    for (kind, plug_ins) in kinds() {
        let mut names = BTreeSet::new();
        let mut schemes = BTreeSet::new();
        for plug_in in plug_ins {
            assert!(names.insert(plug_in.name), "{kind} {} twice", plug_in.name);
            for scheme in plug_in.schemes {
                assert!(schemes.insert(*scheme), "{kind}: `{scheme}:` twice");
            }
            let (scheme, _) = plug_in.example.split_once(':').unwrap();
            assert!(plug_in.schemes.contains(&scheme), "{}", plug_in.example);
        }
    }
    let rows = SINKS
        .iter()
        .flat_map(|sink| sink.modes.iter().map(|mode| (sink.plug_in.name, mode.name)));
    for (sink, mode) in rows {
        assert!(mode.starts_with(sink), "{sink} has a mode `{mode}`");
    }
}

/// A build with all features has all plug-ins, and each feature is passed on.
#[test]
fn every_plug_in_is_in_the_build_of_all_features() {
    let left_out = SINKS
        .iter()
        .filter(|sink| !sink.is_built())
        .map(|sink| sink.plug_in.name)
        .chain(
            STORES
                .iter()
                .filter(|store| !store.is_built())
                .map(|store| store.plug_in.name),
        );
    assert_eq!(
        left_out.collect::<Vec<_>>(),
        [""; 0],
        "run this with --all-features"
    );
    for (kind, plug_ins) in kinds() {
        let own = features(&format!("posthaste-{kind}s"));
        let passed_on = features("posthaste-cli");
        for plug_in in plug_ins {
            let Some(feature) = plug_in.feature else {
                continue;
            };
            assert_eq!(feature.name, plug_in.name, "the feature is named after it");
            assert!(own.contains_key(feature.name), "{kind}s: {}", feature.name);
            let passes_on = format!("posthaste-{kind}s/{}", feature.name);
            let list = passed_on.get(feature.name).and_then(toml::Value::as_array);
            let list = list.unwrap_or_else(|| panic!("posthaste-cli has no {}", feature.name));
            assert!(
                list.iter().any(|item| item.as_str() == Some(&passes_on)),
                "posthaste-cli: {} lacks {passes_on}",
                feature.name
            );
        }
    }
}

fn features(member: &str) -> toml::Table {
    let manifest = read(&root().join("crates").join(member).join("Cargo.toml"));
    let manifest: toml::Table = toml::from_str(&manifest).unwrap();
    manifest["features"].as_table().unwrap().clone()
}

#[test]
fn defaults_are_values_that_options_take() {
    for (_, plug_ins) in kinds() {
        for (plug_in, option) in plug_ins
            .iter()
            .flat_map(|plug_in| plug_in.options.iter().map(move |option| (plug_in, option)))
        {
            let place = format!("{}: {}", plug_in.name, option.name);
            assert!(
                !option.help.is_empty() && option.help.ends_with('.'),
                "{place}"
            );
            if let OptionDefault::Value(value) = option.default {
                assert_eq!(option.check(value), Ok(()), "{place}");
            }
        }
    }
}

#[test]
fn every_plug_in_has_its_files_and_every_page_its_plug_in() {
    for (kind, plug_ins) in kinds() {
        let names: BTreeSet<String> = plug_ins.iter().map(|p| p.name.to_owned()).collect();
        for folder in [
            format!("docs/{kind}s"),
            format!("crates/posthaste-{kind}s/src/descriptors"),
        ] {
            assert_eq!(stems(&folder), names, "{folder}");
        }
        let tests = stems(&format!("crates/posthaste-{kind}s/tests/conformance"));
        assert!(tests.is_superset(&names), "fixtures: {tests:?}");
        for plug_in in plug_ins {
            let title = format!("# {}: {}\n", capitalised(kind), plug_in.name);
            let page = read(&page(kind, plug_in));
            assert!(page.starts_with(&title), "{}", plug_in.name);
            for scheme in plug_in.schemes {
                let names = [format!("{scheme}:"), format!("`{scheme}`")];
                let named = names.iter().any(|name| page.contains(name));
                assert!(named, "{}: {scheme}", plug_in.name);
            }
            let servers = stems("crates/posthaste-testkit/src/servers");
            if let Some(server) = plug_in.server {
                assert!(servers.contains(server), "{}: no server", plug_in.name);
            }
        }
    }
    let migrations = root().join("crates/posthaste/migrations");
    for store in STORES {
        assert!(migrations.join(store.plug_in.name).is_dir());
    }
}

#[test]
fn pages_have_the_options_of_their_plug_in() {
    for (kind, plug_ins) in kinds() {
        for plug_in in plug_ins
            .iter()
            .filter(|plug_in| !plug_in.options.is_empty())
        {
            let mut table =
                "| option | values | default | meaning |\n| --- | --- | --- | --- |\n".to_owned();
            for option in plug_in.options {
                table += &format!("{}\n", option.row());
            }
            expect_block(&page(kind, plug_in), "options", &table);
        }
    }
}

#[test]
fn the_readme_has_a_row_for_every_sink() {
    let mut table = "| | accepted means | order of a key | the event's id | a replaced relay is \
                     kept out by | feature of the build |\n\
                     | --- | --- | --- | --- | --- | --- |\n"
        .to_owned();
    let (brokers, local): (Vec<_>, Vec<_>) =
        SINKS.iter().partition(|sink| sink.plug_in.server.is_some());
    for sink in brokers.into_iter().chain(local) {
        table += &readme_row(sink);
    }
    expect_block(&root().join("README.md"), "destinations", &table);
}

fn readme_row(sink: &SinkDescriptor) -> String {
    let (plug_in, summary) = (&sink.plug_in, sink.summary);
    let by_default = features("posthaste-cli")["default"].clone();
    let by_default = by_default.as_array().unwrap();
    let build = match plug_in.feature {
        None => "none: every build has it".to_owned(),
        Some(feature)
            if by_default
                .iter()
                .any(|name| name.as_str() == Some(feature.name)) =>
        {
            format!("`{}`, on by default", feature.name)
        }
        Some(feature) => match feature.needs {
            Some(needs) => format!("`{}`; needs {needs}", feature.name),
            None => format!("`{}`", feature.name),
        },
    };
    format!(
        "| [{}](docs/sinks/{}.md) | {} | {} | {} | {} | {build} |\n",
        plug_in.title, plug_in.name, summary.accepted, summary.order, summary.id, summary.fence
    )
}

/// The lists of CONTRIBUTING are complete: they name files that exist, for each plug-in that there
/// is, and no more files to edit than a plug-in may cost.
#[test]
fn contributing_names_the_files_of_a_plug_in() {
    let text = read(&root().join("CONTRIBUTING.md"));
    for (kind, heading, edited_max) in [("sink", "**A sink**", 5), ("store", "**A store**", 10)] {
        let (_, section) = text.split_once(heading).unwrap();
        let section = section.split("\n**A ").next().unwrap();
        let (own, edited) = section.split_once("Files to edit").unwrap();
        let plug_ins = kinds().into_iter().find(|(known, _)| *known == kind);
        for plug_in in plug_ins.unwrap().1 {
            for path in paths(own) {
                let is_server = path.contains("/servers/");
                // Two sinks may share a server.
                let server = plug_in.server.filter(|_| is_server);
                let file = path.replace("NAME", server.unwrap_or(plug_in.name));
                let skipped = is_server && plug_in.server.is_none();
                assert!(
                    skipped || root().join(&file).exists(),
                    "{file} does not exist"
                );
            }
        }
        let edited = paths(edited);
        for path in &edited {
            assert!(root().join(path).is_file(), "{path} does not exist");
            let forbidden = ["crates/posthaste-engine/", "crates/posthaste-relay/src/"];
            assert!(
                !forbidden.iter().any(|crate_| path.starts_with(crate_)),
                "{path}"
            );
        }
        let count = edited.iter().collect::<BTreeSet<_>>().len();
        assert!(
            (1..=edited_max).contains(&count),
            "a {kind} costs {count} edited files, at most {edited_max}"
        );
    }
}

/// The paths between backticks.
fn paths(text: &str) -> Vec<String> {
    let code = text.split('`').skip(1).step_by(2);
    code.filter(|code| {
        let begins = ["crates/", "docs/"]
            .iter()
            .any(|start| code.starts_with(start));
        begins || *code == "Cargo.toml"
    })
    .map(str::to_owned)
    .collect()
}

/// Compares what stands between the marks of a block with what should, or writes it.
fn expect_block(file: &Path, name: &str, expected: &str) {
    let (begin, end) = (
        format!("<!-- {name} -->\n"),
        format!("<!-- end of {name} -->"),
    );
    let text = read(file);
    let found = text.split_once(&begin).and_then(|(before, rest)| {
        let (block, after) = rest.split_once(&end)?;
        Some((before, block, after))
    });
    let place = file.strip_prefix(root()).unwrap().display();
    let (before, block, after) =
        found.unwrap_or_else(|| panic!("{place} has no block of {name}: write {begin}{end}"));
    if block == expected {
        return;
    }
    if env::var_os(WRITE).is_some() {
        let text = format!("{before}{begin}{expected}{end}{after}");
        fs::write(file, text).unwrap();
        return;
    }
    panic!(
        "{place}: the table of {name} is not what the rows say; write it with {WRITE}=1 cargo test \
         -p posthaste-cli --all-features --test house"
    );
}

fn page(kind: &str, plug_in: &PlugIn) -> std::path::PathBuf {
    root().join(format!("docs/{kind}s/{}.md", plug_in.name))
}

/// The names of a folder's files without their endings.
fn stems(folder: &str) -> BTreeSet<String> {
    fs::read_dir(root().join(folder))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .filter(|path| path.is_file())
        .map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned())
        .collect()
}

fn capitalised(word: &str) -> String {
    let (first, rest) = word.split_at(1);
    first.to_ascii_uppercase() + rest
}
