//! Lengths of lines and documents, links, the glossary, and comments that hide their subject.

use std::{
    collections::BTreeSet,
    path::{Path, PathBuf},
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
    let code = files_below(&root().join("crates"), "rs");
    assert_eq!(
        lines_that(code, is_wide),
        [""; 0],
        "lines over {COLUMNS_MAX} columns"
    );
}

#[test]
fn comments_begin_with_their_subject() {
    let crates = root().join("crates");
    let mut files = files_below(&crates, "rs");
    let statements = files_below(&crates, "sql").into_iter();
    // A published migration keeps every byte.
    files.extend(statements.filter(|file| !name_of(file).contains("/migrations/")));
    let hide = |line: &str| hidden_subjects(line) > 0;
    assert_eq!(
        lines_that(files, hide),
        [""; 0],
        "sentences that begin with {HIDING:?}"
    );
}

/// Where such lines stand.
fn lines_that(files: Vec<PathBuf>, are_meant: impl Fn(&str) -> bool) -> Vec<String> {
    let of_file = |file: PathBuf| {
        let text = read(&file);
        let lines = (1..).zip(text.lines()).filter(|(_, line)| are_meant(line));
        let places = lines.map(|(number, _)| format!("{}:{number}", name_of(&file)));
        places.collect::<Vec<_>>()
    };
    files.into_iter().flat_map(of_file).collect()
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

/// A path for people.
fn name_of(file: &Path) -> String {
    let name = file.strip_prefix(root()).unwrap();
    name.to_str().unwrap().to_owned()
}
