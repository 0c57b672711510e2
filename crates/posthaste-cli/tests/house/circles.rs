//! No file imports itself through others of its crate.
//!
//! A file imports another one where it names something of it, in a `use` or in a path. Names that
//! a module only passes on (`pub use`) lead to the file that has them. A file may use what the
//! modules above it define: only paths to other branches count.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use super::{read, root};

type Module = Vec<String>;

#[test]
fn no_file_imports_itself_through_others() {
    for (member, _) in super::DIRECTION {
        let sources = Sources::of(&root().join("crates").join(member).join("src"));
        let circular = sources.circular();
        assert_eq!(circular, [""; 0], "{member}");
    }
}

#[test]
fn imports_are_understood() {
    let mut paths = Vec::new();
    expand(
        "super::{Grant, read::{self, Page as P}, sweep::*}",
        &mut paths,
    );
    let names: Vec<_> = paths
        .iter()
        .map(|(path, name)| (path.join("::"), &**name))
        .collect();
    let expected = [
        ("super::Grant", "Grant"),
        ("super::read", "read"),
        ("super::read::Page", "P"),
        ("super::sweep::*", "*"),
    ];
    assert_eq!(names, expected.map(|(path, name)| (path.to_owned(), name)));
    assert_eq!(code("a // b\n\"c\" d"), "a \n\"\" d");
}

/// The modules of a crate, each with its code and with the names that its imports bring.
#[derive(Default)]
struct Sources {
    code: BTreeMap<Module, String>,
    names: BTreeMap<Module, BTreeMap<String, Vec<String>>>,
    imports: BTreeMap<Module, Vec<Vec<String>>>,
}

impl Sources {
    fn of(folder: &Path) -> Self {
        let mut sources = Self::default();
        for file in ["lib.rs", "main.rs"] {
            if folder.join(file).exists() {
                sources.load(Vec::new(), &folder.join(file), folder);
            }
        }
        for (module, code) in &sources.code {
            let (mut names, mut imports) = (BTreeMap::new(), Vec::new());
            for import in code
                .split("use ")
                .skip(1)
                .filter_map(|rest| rest.split_once(';'))
            {
                let mut paths = Vec::new();
                expand(import.0, &mut paths);
                for (path, name) in paths {
                    imports.push(path.clone());
                    names.insert(name, path);
                }
            }
            sources.names.insert(module.clone(), names);
            sources.imports.insert(module.clone(), imports);
        }
        sources
    }

    fn load(&mut self, module: Module, file: &Path, folder: &Path) {
        let mut text = code(&read(file));
        // Imports of the tests inside a file do not count.
        if let Some(tests) = text.find("#[cfg(test)]\nmod tests {") {
            text.truncate(tests);
        }
        for line in text.lines() {
            let Some((before, name)) = line.trim().strip_suffix(';').and_then(|line| {
                let (before, name) = line.rsplit_once("mod ")?;
                Some((before, name.to_owned()))
            }) else {
                continue;
            };
            if !(before.is_empty() || before.starts_with("pub")) {
                continue;
            }
            let mut child = module.clone();
            child.push(name.clone());
            let candidates = [
                folder.join(format!("{name}.rs")),
                folder.join(&name).join("mod.rs"),
            ];
            if let Some(file) = candidates.iter().find(|file| file.exists()) {
                self.load(child, file, &folder.join(&name));
            }
        }
        // A crate with a library and a binary has both at its root.
        self.code.entry(module).or_default().push_str(&text);
    }

    /// The file to which a path leads; none: out of the crate.
    fn file_of(&self, from: &Module, path: &[String], depth: usize) -> Option<Module> {
        let (mut at, mut rest) = match path.first()?.as_str() {
            "crate" => (Vec::new(), &path[1..]),
            "self" => (from.clone(), &path[1..]),
            "super" => {
                let ups = path
                    .iter()
                    .take_while(|segment| *segment == "super")
                    .count();
                (from[..from.len().checked_sub(ups)?].to_vec(), &path[ups..])
            }
            name => {
                let mut child = from.clone();
                child.push(name.to_owned());
                self.code
                    .contains_key(&child)
                    .then_some((from.clone(), path))?
            }
        };
        while let Some((name, behind)) = rest.split_first() {
            let mut child = at.clone();
            child.push(name.clone());
            if self.code.contains_key(&child) {
                (at, rest) = (child, behind);
                continue;
            }
            let passed_on = self.names.get(&at).and_then(|names| names.get(name));
            return match passed_on.filter(|passed_on| passed_on[..] != *path && depth < 8) {
                Some(passed_on) => {
                    let whole = [passed_on, behind].concat();
                    self.file_of(&at, &whole, depth + 1)
                }
                None => Some(at),
            };
        }
        Some(at)
    }

    fn imported_by(&self, module: &Module) -> BTreeSet<Module> {
        let mut paths = self.imports[module].clone();
        paths.extend(paths_beside_imports(&self.code[module]));
        let files = paths
            .iter()
            .filter_map(|path| self.file_of(module, path, 0));
        files.filter(|file| !module.starts_with(file)).collect()
    }

    /// The modules from which imports lead back to themselves.
    fn circular(&self) -> Vec<String> {
        let edges: BTreeMap<_, _> = self
            .code
            .keys()
            .map(|module| (module, self.imported_by(module)))
            .collect();
        let mut circular = Vec::new();
        for module in self.code.keys() {
            let mut reached = BTreeSet::new();
            let mut next: Vec<&Module> = edges[module].iter().collect();
            while let Some(file) = next.pop() {
                if reached.insert(file) {
                    next.extend(&edges[file]);
                }
            }
            if reached.contains(module) {
                circular.push(module.join("::"));
            }
        }
        circular
    }
}

/// The text without comments and without what stands in quotes.
fn code(text: &str) -> String {
    let (mut code, mut quoted) = (String::new(), false);
    for line in text.lines() {
        let mut chars = line.char_indices();
        while let Some((at, c)) = chars.next() {
            match c {
                '\\' if quoted => drop(chars.next()),
                // A quote as a character is no beginning of a text.
                '"' if !quoted && line[..at].ends_with('\'') => {}
                '"' => {
                    quoted = !quoted;
                    code.push('"');
                }
                '/' if !quoted && line[at..].starts_with("//") => break,
                c if !quoted => code.push(c),
                _ => {}
            }
        }
        code.push('\n');
    }
    code.truncate(code.trim_end_matches('\n').len());
    code
}

/// Adds the paths of a tree of imports, each with the name that it gets.
fn expand(tree: &str, paths: &mut Vec<(Vec<String>, String)>) {
    expand_below(&[], tree, paths);
}

fn expand_below(above: &[String], tree: &str, paths: &mut Vec<(Vec<String>, String)>) {
    let segments = |text: &str| -> Vec<String> {
        let names = text.split("::").map(str::trim);
        names
            .filter(|name| !name.is_empty())
            .map(str::to_owned)
            .collect()
    };
    let Some((start, rest)) = tree.split_once('{') else {
        let (path, name) = tree.split_once(" as ").unwrap_or((tree, ""));
        let mut path = [above, &segments(path)].concat();
        if path.len() > 1 && path.last().is_some_and(|last| last == "self") {
            path.pop();
        }
        let name = match name.trim() {
            "" => path.last().cloned().unwrap_or_default(),
            name => name.to_owned(),
        };
        return paths.push((path, name));
    };
    let above = [above, &segments(start)].concat();
    let inside = rest.rsplit_once('}').map_or(rest, |(inside, _)| inside);
    let (mut depth, mut from) = (0, 0);
    for (at, c) in inside.char_indices().chain([(inside.len(), ',')]) {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                if !inside[from..at].trim().is_empty() {
                    expand_below(&above, &inside[from..at], paths);
                }
                from = at + 1;
            }
            _ => {}
        }
    }
}

/// The paths that the code names, its imports left out.
fn paths_beside_imports(code: &str) -> Vec<Vec<String>> {
    let mut parts = code.split("use ");
    let mut rest = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        rest.push_str(part.split_once(';').map_or("", |(_, behind)| behind));
    }
    let is_name = |c: char| c.is_alphanumeric() || c == '_' || c == ':';
    let words = rest
        .split(|c| !is_name(c))
        .filter(|word| word.contains("::"));
    let paths = words.map(|word| {
        let names = word.split("::").filter(|name| !name.is_empty());
        names.map(str::to_owned).collect::<Vec<_>>()
    });
    paths.filter(|path| path.len() > 1).collect()
}
