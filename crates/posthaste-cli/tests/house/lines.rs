//! Lengths of lines and documents, links, the glossary, and comments that hide their subject.
//!
//! Exceptions are counts in two lists beside this file. They may only shrink, crate by crate, so
//! that a file that moves within its crate takes its count along. The test rewrites both lists with
//! the present counts when `POSTHASTE_HOUSE_SHRINK` is set, unless their sum has grown.

use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs,
    path::Path,
};

use super::{files_below, read, root};

const COLUMNS_MAX: usize = 100;

const DOCUMENT_LINES_MAX: &[(&str, usize)] = &[
    ("README.md", 150),
    ("ARCHITECTURE.md", 300),
    ("CONTRIBUTING.md", 120),
];

const GLOSSARY_WORDS_MAX: usize = 30;

/// Words that hide the subject of a sentence when they begin it.
const HIDING: &[&str] = &["What", "Whatever", "Who", "Whoever"];

#[test]
fn lines_of_code_end_at_100_columns() {
    let files = files_below(&root().join("crates"), "rs");
    let counts = files.iter().map(|file| {
        let wide = read(file).lines().filter(|line| is_wide(line)).count();
        (name_of(file), wide)
    });
    assert_no_more("wide_lines.txt", counts.collect());
}

#[test]
fn comments_begin_with_their_subject() {
    let mut counts = BTreeMap::new();
    let crates = root().join("crates");
    let code = files_below(&crates, "rs").into_iter();
    let statements = files_below(&crates, "sql").into_iter();
    // A published migration keeps every byte.
    let statements = statements.filter(|file| !name_of(file).contains("/migrations/"));
    for file in code.chain(statements) {
        let comments = read(&file).lines().map(hidden_subjects).sum::<usize>();
        *counts.entry(crate_of(&name_of(&file))).or_default() += comments;
    }
    assert_no_more("hidden_subjects.txt", counts);
}

#[test]
fn prose_ends_at_100_columns() {
    let mut wide = Vec::new();
    for file in files_below(&root(), "md") {
        let mut fenced = false;
        for (number, line) in (1..).zip(read(&file).lines()) {
            fenced ^= line.trim_start().starts_with("```");
            let table_or_code = line.starts_with('|') || line.starts_with("    ");
            if !fenced && !table_or_code && is_wide(line) {
                wide.push(format!("{}:{number}", name_of(&file)));
            }
        }
    }
    assert_eq!(wide, [""; 0], "lines over {COLUMNS_MAX} columns");
}

#[test]
fn documents_are_short_enough_to_be_read() {
    for (name, most) in DOCUMENT_LINES_MAX {
        let lines = read(&root().join(name)).lines().count();
        assert!(lines <= *most, "{name} has {lines} lines, more than {most}");
    }
}

#[test]
fn the_glossary_is_short_enough_to_be_learned() {
    let page = read(&root().join("ARCHITECTURE.md"));
    let (_, glossary) = page.split_once("\n## Glossary\n").unwrap();
    let (glossary, _) = glossary.split_once("\n## ").unwrap();
    let rows = glossary.lines().filter_map(|line| line.strip_prefix("| "));
    let words = rows.skip(1).filter(|row| !row.starts_with("---"));
    let words = words.flat_map(|row| row.split('|').next().unwrap().split(','));
    let words: Vec<_> = words.map(str::trim).collect();
    assert!(words.contains(&"outbox"), "the glossary was not understood");
    assert!(words.len() <= GLOSSARY_WORDS_MAX, "{words:?}");
}

#[test]
fn files_that_contributing_names_exist() {
    let page = read(&root().join("CONTRIBUTING.md"));
    let paths = page.split('`').skip(1).step_by(2).filter(|code| {
        ["crates/", "docs/"]
            .iter()
            .any(|start| code.starts_with(start))
            || code.ends_with(".md")
    });
    // The paths of a plug-in that does not exist yet are tested for those that do.
    let paths = paths.filter(|path| !path.contains("NAME"));
    let (known, gone): (Vec<_>, Vec<_>) = paths.partition(|path| root().join(path).exists());
    assert!(known.len() > 20, "the page was not understood");
    assert_eq!(gone, [""; 0], "named in CONTRIBUTING.md");
}

#[test]
fn links_between_documents_lead_somewhere() {
    let (mut links, mut broken) = (0, Vec::new());
    for file in files_below(&root(), "md") {
        let page = read(&file);
        let targets = page
            .split("](")
            .skip(1)
            .filter_map(|rest| rest.split(')').next());
        for target in targets.filter(|target| !target.contains("://")) {
            let (path, anchor) = target.split_once('#').unwrap_or((target, ""));
            let other = match path {
                "" => file.clone(),
                path => file.with_file_name(path),
            };
            let found = other.exists() && (anchor.is_empty() || anchors(&other).contains(anchor));
            links += 1;
            if !found {
                broken.push(format!("{} in {}", target, name_of(&file)));
            }
        }
    }
    assert!(links > 50, "the links were not found");
    assert_eq!(broken, [""; 0], "links that lead nowhere");
}

#[test]
fn sentences_are_seen_in_comments_alone() {
    assert_eq!(hidden_subjects("    /// What it holds."), 1);
    assert_eq!(
        hidden_subjects("//! Ends. Who asks waits. Whoever comes later, too"),
        2
    );
    assert_eq!(hidden_subjects("    -- $1 name. Whatever it holds."), 1);
    assert_eq!(
        hidden_subjects("// It says what it holds, and who: Whatever."),
        0
    );
    assert_eq!(hidden_subjects("let text = \"What now\";"), 0);
}

/// A line with nowhere to break it, such as an address, is as long as it has to be.
fn is_wide(line: &str) -> bool {
    let marks = |c: char| c.is_whitespace() || "/!-*".contains(c);
    line.chars().count() > COLUMNS_MAX && line.trim_start_matches(marks).contains(' ')
}

/// The anchors of a page's headings, as GitHub makes them.
fn anchors(page: &Path) -> BTreeSet<String> {
    let text = read(page);
    let headings = text.lines().filter(|line| line.starts_with('#'));
    let kept = |c: &char| c.is_alphanumeric() || "-_ ".contains(*c);
    headings
        .map(|heading| {
            let heading = heading.trim_start_matches('#').trim().to_lowercase();
            heading
                .chars()
                .filter(kept)
                .collect::<String>()
                .replace(' ', "-")
        })
        .collect()
}

/// How many sentences of a comment's line begin with a word of [`HIDING`].
fn hidden_subjects(line: &str) -> usize {
    let line = line.trim_start();
    let Some(comment) = line.strip_prefix("//").or(line.strip_prefix("--")) else {
        return 0;
    };
    let sentences = comment.trim_start_matches(['/', '!', ' ']).split(". ");
    sentences
        .filter(|sentence| {
            let word = sentence.split(|c: char| !c.is_alphabetic()).next();
            word.is_some_and(|word| HIDING.contains(&word))
        })
        .count()
}

/// Compares counts with those that a list allows.
fn assert_no_more(list: &str, mut counts: BTreeMap<String, usize>) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("tests/house")
        .join(list);
    counts.retain(|_, count| *count > 0);
    let allowed = allowed(&read(&path));
    if env::var_os("POSTHASTE_HOUSE_SHRINK").is_some() {
        let (now, before): (usize, usize) = (counts.values().sum(), allowed.values().sum());
        assert!(now <= before, "{list}: {now} altogether, {before} before");
        let lines = counts
            .iter()
            .map(|(name, count)| format!("{count} {name}\n"));
        fs::write(&path, lines.collect::<String>()).unwrap();
        return;
    }
    let (sums, sums_allowed) = (by_crate(&counts), by_crate(&allowed));
    let mut more = Vec::new();
    for (name, count) in &counts {
        let crate_name = crate_of(name);
        let most = allowed.get(name).copied().unwrap_or(0);
        if sums[&crate_name] > sums_allowed.get(&crate_name).copied().unwrap_or(0) && *count > most
        {
            more.push(format!("{name}: {count}, more than {most}"));
        }
    }
    assert!(
        more.is_empty(),
        "{list} may only shrink; for a move between crates set POSTHASTE_HOUSE_SHRINK:\n{}",
        more.join("\n")
    );
}

fn allowed(list: &str) -> BTreeMap<String, usize> {
    let entries = list.lines().map(|line| {
        let (count, name) = line.split_once(' ').unwrap();
        (name.to_owned(), count.parse().unwrap())
    });
    entries.collect()
}

fn by_crate(counts: &BTreeMap<String, usize>) -> BTreeMap<String, usize> {
    let mut sums = BTreeMap::new();
    for (name, count) in counts {
        *sums.entry(crate_of(name)).or_default() += count;
    }
    sums
}

/// `crates/NAME` of a path below it.
fn crate_of(name: &str) -> String {
    name.split('/').take(2).collect::<Vec<_>>().join("/")
}

/// A path as the lists have it.
fn name_of(file: &Path) -> String {
    let name = file.strip_prefix(root()).unwrap();
    name.to_str().unwrap().to_owned()
}
