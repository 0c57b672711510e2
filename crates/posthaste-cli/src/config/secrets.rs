//! References to secrets inside a configuration file: `${NAME}` for an environment variable,
//! `${file:/path}` for the contents of a file, `$$` for a dollar sign.

use std::path::Path;

use posthaste_engine::shown;

use crate::secret::SecretUrl;

/// Replaces every reference. Relative paths begin in this folder.
///
/// # Errors
/// The missing part, with the fix; never a secret.
pub(crate) fn resolve(text: &str, folder: &Path) -> Result<String, String> {
    resolve_with(text, folder, |name| std::env::var(name).ok())
}

/// [`resolve`] in this environment.
pub(super) fn resolve_with(
    text: &str,
    folder: &Path,
    env: impl Fn(&str) -> Option<String>,
) -> Result<String, String> {
    let mut resolved = String::new();
    let mut rest = text;
    while let Some(at) = rest.find('$') {
        let (literal, reference) = rest.split_at(at);
        resolved.push_str(literal);
        if let Some(after) = reference.strip_prefix("$$") {
            resolved.push('$');
            rest = after;
        } else if let Some(body) = reference.strip_prefix("${") {
            let (name, after) = body.split_once('}').ok_or(
                "a `${` is never closed; write ${NAME} or ${file:/path}, and $$ for a dollar sign",
            )?;
            resolved.push_str(&match name.strip_prefix("file:") {
                Some(path) => from_file(&folder.join(path))?,
                None => env(name).ok_or_else(|| {
                    format!(
                        "the environment variable `{}` is not set; set it, or write \
                         ${{file:/path}} to read the value from a file",
                        shown(name)
                    )
                })?,
            });
            rest = after;
        } else {
            resolved.push('$');
            rest = &reference[1..];
        }
    }
    resolved.push_str(rest);
    Ok(resolved)
}

fn from_file(path: &Path) -> Result<String, String> {
    let contents = std::fs::read_to_string(path).map_err(|error| {
        let path = SecretUrl::new(path.display().to_string());
        format!("cannot read the secret in `{path}`: {error}; create the file, or correct the path")
    })?;
    // Every editor ends a file with a line end, no secret does.
    Ok(contents.trim_end_matches(['\r', '\n']).to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn references_are_replaced_and_missing_ones_named() {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "from-file\n").unwrap();
        let env = |name: &str| (name == "PW").then(|| "pa$$w".to_owned());
        let resolve = |text: &str| resolve_with(text, file.path().parent().unwrap(), env);
        let name = Path::new(file.path().file_name().unwrap());
        for path in [file.path(), name] {
            let text = format!("a${{PW}}b${{file:{}}}c$$d$e", path.display());
            assert_eq!(resolve(&text).unwrap(), "apa$$wbfrom-filec$d$e");
        }
        for (wrong, named) in [
            ("${NO}", "`NO` is not set"),
            ("${file:/no/such}", "/no/such"),
            ("x${PW", "never closed"),
        ] {
            assert!(resolve(wrong).unwrap_err().contains(named), "{wrong}");
        }
    }
}
