//! Values from libpq's variables and files, where a URL is silent: `PGHOST` and its like, the
//! service file and the password file, with the meanings of libpq's manual.

use std::{
    fs, io,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
};

use posthaste_engine::{StoreError, shown};

use super::{Parsed, wrong};

/// Answers an environment variable's value.
pub(super) type Variable<'a> = &'a dyn Fn(&str) -> Option<String>;

const VARIABLES: [(&str, &str); 14] = [
    ("PGAPPNAME", "application_name"),
    ("PGCHANNELBINDING", "channel_binding"),
    ("PGCONNECT_TIMEOUT", "connect_timeout"),
    ("PGDATABASE", "dbname"),
    ("PGHOST", "host"),
    ("PGOPTIONS", "options"),
    ("PGPASSFILE", "passfile"),
    ("PGPASSWORD", "password"),
    ("PGPORT", "port"),
    ("PGSERVICE", "service"),
    ("PGSSLMODE", "sslmode"),
    ("PGSSLROOTCERT", "sslrootcert"),
    ("PGTARGETSESSIONATTRS", "target_session_attrs"),
    ("PGUSER", "user"),
];

/// Fills in what is not given: from the service, then from the variables, and the password from its
/// file.
pub(super) fn fill(parsed: &mut Parsed, variable: Variable<'_>) -> Result<(), StoreError> {
    if let Some(name) = parsed.service.clone().or_else(|| variable("PGSERVICE")) {
        for (option, value) in service(&name, variable)? {
            set(
                parsed,
                &option,
                value,
                &format!("service `{}`", shown(&name)),
            )?;
        }
    }
    for (name, option) in VARIABLES {
        if let Some(value) = variable(name).filter(|value| !value.is_empty()) {
            set(parsed, option, value, name)?;
        }
    }
    if parsed.is_given("password") {
        return Ok(());
    }
    let in_home = || Some(Path::new(&variable("HOME")?).join(".pgpass"));
    let file = parsed.password_file.clone().or_else(in_home);
    if let Some(file) = file
        && let Some(password) = password(parsed, &file)?
    {
        parsed.set("password", password)?;
    }
    Ok(())
}

/// Says where a wrong value comes from.
fn set(parsed: &mut Parsed, option: &str, value: String, giver: &str) -> Result<(), StoreError> {
    if parsed.is_given(option) {
        return Ok(());
    }
    parsed.set(option, value).map_err(|error| match error {
        StoreError::Misconfigured { reason, .. } => wrong(format!("{giver}: {reason}")),
        error => error,
    })
}

fn read(file: &Path) -> Result<Option<String>, StoreError> {
    match fs::read_to_string(file) {
        Ok(text) => Ok(Some(text)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(wrong(format!("cannot read {}: {error}", file.display()))),
    }
}

/// The options of a service: of the user's file, else of the machine's.
fn service(name: &str, variable: Variable<'_>) -> Result<Vec<(String, String)>, StoreError> {
    let of_user = variable("PGSERVICEFILE")
        .map(PathBuf::from)
        .or_else(|| Some(Path::new(&variable("HOME")?).join(".pg_service.conf")));
    let of_machine = variable("PGSYSCONFDIR").map(|dir| Path::new(&dir).join("pg_service.conf"));
    let files: Vec<_> = of_user.into_iter().chain(of_machine).collect();
    for file in &files {
        if let Some(text) = read(file)?
            && let Some(options) = section(&text, name)
        {
            return options.map_err(|line| {
                let file = file.display();
                wrong(format!("{file}, line {line}: it must be option=value"))
            });
        }
    }
    let looked: Vec<_> = files
        .iter()
        .map(|file| file.display().to_string())
        .collect();
    Err(wrong(format!(
        "there is no service `{}` in {}",
        shown(name),
        looked.join(" and ")
    )))
}

/// The lines of a section; an error is the number of a line that is none.
fn section(text: &str, name: &str) -> Option<Result<Vec<(String, String)>, usize>> {
    let lines = text.lines().map(str::trim).enumerate();
    let heading = format!("[{name}]");
    let mut ours = lines.skip_while(|(_, line)| *line != heading);
    ours.next()?;
    let options = ours
        .take_while(|(_, line)| !line.starts_with('['))
        .filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
        .map(|(at, line)| {
            let (option, value) = line.split_once('=').ok_or(at + 1)?;
            Ok((option.trim().to_owned(), value.trim().to_owned()))
        });
    Some(options.collect())
}

/// The password of the first line that means one of the hosts. The driver has one password for all
/// of them.
fn password(parsed: &Parsed, file: &Path) -> Result<Option<String>, StoreError> {
    let Some(text) = read(file)? else {
        return Ok(None);
    };
    let (user, database) = (parsed.driver.get_user(), parsed.driver.get_dbname());
    let (user, database) = (
        user.unwrap_or_default(),
        database.or(user).unwrap_or_default(),
    );
    let unnamed = [super::DEFAULT_HOST.to_owned()];
    let hosts = match parsed.hosts.is_empty() {
        true => &unnamed[..],
        false => &parsed.hosts,
    };
    let found = hosts.iter().enumerate().find_map(|(at, host)| {
        let port = parsed.ports.get(at).or(parsed.ports.first());
        let port = port.copied().unwrap_or(super::DEFAULT_PORT).to_string();
        let lines = text.lines().filter(|line| !line.starts_with('#'));
        lines.map(fields).find_map(|mut line| {
            let password = (line.len() == 5).then(|| line.pop())??;
            let meant = [host.as_str(), port.as_str(), database, user];
            let means = |(field, meant): (&String, &str)| field == "*" || field == meant;
            line.iter().zip(meant).all(means).then_some(password)
        })
    });
    let mode = fs::metadata(file).map_or(0, |file| file.permissions().mode());
    if found.is_some() && mode & 0o077 != 0 {
        let file = file.display();
        return Err(wrong(format!(
            "others may read the passwords in {file}; fix: chmod 600 {file}"
        )));
    }
    Ok(found)
}

/// The fields of a line, between colons; behind a backslash a colon or a backslash is a letter like
/// others.
fn fields(line: &str) -> Vec<String> {
    let mut fields = vec![String::new()];
    let mut letters = line.chars();
    while let Some(letter) = letters.next() {
        let letter = match letter {
            ':' if fields.len() < 5 => {
                fields.push(String::new());
                continue;
            }
            '\\' => letters.next().unwrap_or('\\'),
            letter => letter,
        };
        if let Some(field) = fields.last_mut() {
            field.push(letter);
        }
    }
    fields
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::super::{PostgresConfig, SslMode};
    use super::*;

    /// A home with these files, readable for its owner alone.
    fn home(files: &[(&str, &str)]) -> tempfile::TempDir {
        let home = tempfile::tempdir().unwrap();
        for (name, text) in files {
            let path = home.path().join(name);
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
        }
        home
    }

    fn parse(
        url: &str,
        home: &tempfile::TempDir,
        variables: &[(&str, &str)],
    ) -> Result<PostgresConfig, StoreError> {
        let variables: HashMap<_, _> = variables.iter().copied().collect();
        let home = home.path().to_str().unwrap();
        PostgresConfig::parse_with(url, &|name| match name {
            "HOME" => Some(home.to_owned()),
            name => variables.get(name).map(|value| (*value).to_owned()),
        })
    }

    fn of(config: &PostgresConfig) -> (String, Vec<u16>, &str, &str, Option<&str>) {
        let driver = &config.driver;
        (
            format!("{:?}", driver.get_hosts()),
            driver.get_ports().to_vec(),
            driver.get_user().unwrap(),
            driver.get_dbname().unwrap_or_default(),
            driver
                .get_password()
                .map(|p| std::str::from_utf8(p).unwrap()),
        )
    }

    const VARIABLES: [(&str, &str); 6] = [
        ("PGHOST", "elsewhere"),
        ("PGPORT", "6000"),
        ("PGUSER", "me"),
        ("PGDATABASE", "shop"),
        ("PGPASSWORD", "geheim"),
        ("PGSSLMODE", "require"),
    ];

    #[test]
    fn variables_say_what_the_url_does_not() {
        let home = home(&[]);
        let bare = parse("postgres://", &home, &VARIABLES).unwrap();
        let elsewhere = "[Tcp(\"elsewhere\")]".to_owned();
        assert_eq!(
            of(&bare),
            (elsewhere, vec![6000], "me", "shop", Some("geheim"))
        );
        assert_eq!(bare.ssl_mode, SslMode::Require);
        let url = "postgres://you:own@here:7000/other?sslmode=disable";
        let whole = parse(url, &home, &VARIABLES).unwrap();
        let here = "[Tcp(\"here\")]".to_owned();
        assert_eq!(
            of(&whole),
            (here.clone(), vec![7000], "you", "other", Some("own"))
        );
        assert_eq!(whole.ssl_mode, SslMode::Disable);
        // A port is not the host's of the URL alone.
        let half = parse("postgres://here", &home, &VARIABLES).unwrap();
        assert_eq!(of(&half), (here, vec![6000], "me", "shop", Some("geheim")));
    }

    #[test]
    fn an_error_names_the_variable() {
        let wrong = parse("postgres://me@h/d", &home(&[]), &[("PGSSLMODE", "yes")]);
        let text = wrong.unwrap_err().to_string();
        assert!(text.contains("PGSSLMODE: sslmode=yes"), "{text}");
    }

    const SERVICES: &str = "# ours\n[other]\nhost=wrong\n\n\
                            [shop]\nhost = db1\nport=5433\n# no\nuser=me\n\
                            [last]\nuser=x\n";

    #[test]
    fn a_service_goes_before_variables_and_behind_the_url() {
        let home = home(&[
            (".pg_service.conf", SERVICES),
            (".pgpass", "db1:5433:*:me:by file\n"),
        ]);
        let variables = [
            ("PGSERVICE", "shop"),
            ("PGUSER", "nobody"),
            ("PGDATABASE", "d"),
        ];
        let config = parse("postgres://", &home, &variables).unwrap();
        let db1 = "[Tcp(\"db1\")]".to_owned();
        assert_eq!(of(&config), (db1, vec![5433], "me", "d", Some("by file")));
        let config = parse("postgres://you@/?service=shop", &home, &[]).unwrap();
        assert_eq!(config.driver.get_user(), Some("you"));
        let file = home.path().join(".pg_service.conf");
        let there = ("PGSERVICEFILE", file.to_str().unwrap());
        let absent = parse("postgres://?service=absent", &home, &[there]);
        let text = absent.unwrap_err().to_string();
        assert!(
            text.contains("no service `absent` in") && text.contains(there.1),
            "{text}"
        );
    }

    #[test]
    fn a_line_of_a_service_that_is_no_option_is_named() {
        for (line, part) in [
            ("nonsense", "line 2: it must be"),
            ("prot=1", "did you mean `port`"),
        ] {
            let home = home(&[(".pg_service.conf", &format!("[s]\n{line}\n"))]);
            let text = parse("postgres://?service=s", &home, &[])
                .unwrap_err()
                .to_string();
            assert!(text.contains(part), "{text}");
        }
    }

    #[test]
    fn a_password_is_found_by_host_port_database_and_user() {
        let lines = "# of old: h:1:d:me:wrong\nh:5432:d:you:wrong\nh:5433:d:me:wrong\n\
                     b:*:d:me:be\\:e\\\\\nh:*:*:me:ha:ha\n*:*:*:last:\n";
        let home = home(&[(".pgpass", lines)]);
        for (url, password) in [
            ("postgres://me@h/d", Some("ha:ha")),
            ("postgres://me@b:9/d", Some("be:e\\")),
            ("postgres://me@a,b/d", Some("be:e\\")),
            ("postgres://me@b/other", None),
            ("postgres://me:own@h/d", Some("own")),
            ("postgres://he@h/d", None),
        ] {
            assert_eq!(of(&parse(url, &home, &[]).unwrap()).4, password, "{url}");
        }
        let file = home.path().join(".pgpass");
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        let refused = parse("postgres://me@h/d", &home, &[])
            .unwrap_err()
            .to_string();
        assert!(refused.contains("chmod 600"), "{refused}");
        parse("postgres://he@h/d", &home, &[]).unwrap();
    }
}
