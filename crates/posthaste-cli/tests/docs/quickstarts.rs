//! The quick starts: each program is what the page shows, writes a business row and its event
//! through its own client, and leaves neither when its transaction fails.

use std::{fs, path::Path, path::PathBuf, process::Command};

use posthaste_testkit::{
    packages, process,
    servers::postgres::{Database, PostgresServer},
};
use posthaste_torture::relay::command as posthaste;
use serde_json::{Value, json};

use crate::page::{self, root};
use crate::tools::LIMIT;

const PAGE: &str = "docs/quickstarts.md";

/// Orders whose event was written by the transaction that wrote them.
const IN_ONE_TRANSACTION: &str = "\
select count(*) from orders o join posthaste.outbox e on e.key = o.id::text
where o.xmin::text = (e.xid::text::numeric % 4294967296)::text";

/// A shop's database, as the page makes it.
struct Shop {
    server: &'static PostgresServer,
    database: Database,
    writer: String,
    folder: tempfile::TempDir,
}

impl Shop {
    fn new() -> Self {
        let server = PostgresServer::shared(15);
        let database = server.create_database();
        let writer = format!("shop_{}", database.name());
        database.psql(&format!("create role {writer} login"));
        let tables = page::blocks(&page::read(PAGE));
        let tables = tables.iter().find(|block| block.language == "sql").unwrap();
        let tables = tables.text.replace("to shop", &format!("to {writer}"));
        assert!(tables.contains(&writer), "{tables}");
        database.psql(&tables);
        let shop = Self {
            server,
            database,
            writer,
            folder: tempfile::tempdir().unwrap(),
        };
        shop.posthaste(&[
            "init",
            "--store",
            &shop.database.url(),
            "--writer",
            &shop.writer,
        ]);
        shop
    }

    fn posthaste(&self, arguments: &[&str]) {
        process::run(&mut posthaste(arguments), LIMIT).expect_status(0);
    }

    fn url(&self, scheme: &str) -> String {
        let url = self.database.url_for(&self.writer);
        let (_, address) = url.split_once("://").unwrap();
        format!("{scheme}://{address}")
    }

    fn jdbc_url(&self) -> String {
        let (port, name) = (self.server.port(), self.database.name());
        format!(
            "jdbc:postgresql://127.0.0.1:{port}/{name}?user={}",
            self.writer
        )
    }

    /// From now on each commit of an order fails, when its event has been written.
    fn refuse_orders(&self) {
        self.database.psql(
            "create function refuse() returns trigger language plpgsql
                 as $$ begin raise exception 'no more orders'; end $$;
             create constraint trigger refuse after insert on orders
                 deferrable initially deferred for each row execute function refuse()",
        );
    }

    /// The lines that a relay delivers.
    fn delivered(&self) -> Vec<Value> {
        let file = self.folder.path().join("events.jsonl");
        self.posthaste(&[
            "relay",
            "--from",
            &self.database.url(),
            "--to",
            &format!("file://{}", file.display()),
            "--until-drained",
        ]);
        let lines = fs::read_to_string(&file).unwrap_or_default();
        let lines = lines.lines();
        lines
            .map(|line| serde_json::from_str(line).unwrap())
            .collect()
    }
}

impl Drop for Shop {
    fn drop(&mut self) {
        if !std::thread::panicking() {
            let writer = &self.writer;
            self.database
                .psql(&format!("drop owned by {writer}; drop role {writer}"));
        }
    }
}

fn example(name: &str) -> PathBuf {
    root().join("docs/examples").join(name)
}

/// The page's section has these files word for word, and installs these packages, which the
/// example's own manifest names too.
fn is_shown(section: &str, files: &[&str], manifest: Option<&str>, packages: &[&str]) {
    let page = page::read(PAGE);
    let (_, section) = page.split_once(&format!("\n## {section}\n")).unwrap();
    let section = section.split("\n## ").next().unwrap();
    let blocks = page::blocks(section);
    for file in files {
        let text = fs::read_to_string(example(file)).unwrap();
        assert!(
            blocks.iter().any(|block| block.text == text),
            "{PAGE} does not show {file} as it is:\n{text}"
        );
        assert!(section.contains(&format!("(examples/{file})")), "{file}");
    }
    let install = blocks.iter().find(|block| block.language == "sh");
    let install = install.map_or("", |block| &block.text);
    let manifest = manifest.map(|manifest| fs::read_to_string(example(manifest)).unwrap());
    for package in packages {
        assert!(install.contains(package), "{package} is not in {install}");
        if let Some(manifest) = &manifest {
            assert!(manifest.contains(package), "{package} is not in {manifest}");
        }
    }
}

/// Runs a program twice: its transaction commits, then it fails at its commit.
fn is_all_or_nothing(program: impl Fn(&Shop) -> Command) {
    let shop = Shop::new();
    process::run(&mut program(&shop), LIMIT).expect_status(0);
    assert_eq!(shop.database.psql(IN_ONE_TRANSACTION), "1");
    shop.refuse_orders();
    let refused = process::run(&mut program(&shop), LIMIT);
    assert!(!refused.status.success(), "{refused}");
    let told = format!("{}{}", refused.stdout, refused.stderr);
    assert!(told.contains("no more orders"), "{refused}");

    let order = shop.database.psql("select id from orders");
    assert_eq!(order.lines().count(), 1, "{order}");
    is_the_event_of(&order, &shop.delivered());
}

fn is_the_event_of(order: &str, delivered: &[Value]) {
    let [event] = delivered else {
        panic!("one event, not {delivered:#?}")
    };
    let payload: Value = serde_json::from_str(event["payload"].as_str().unwrap()).unwrap();
    assert_eq!(payload, json!([{"item": "book", "count": 2}]));
    for (field, expected) in [
        ("topic", json!("orders")),
        ("key", json!(order)),
        ("type", json!("order.placed")),
        ("content_type", json!("application/json")),
        ("headers", json!([["source", "shop"]])),
    ] {
        assert_eq!(event[field], expected, "{field}");
    }
}

fn python(folder: &str, scheme: &'static str, file: &str) -> impl Fn(&Shop) -> Command {
    let python = packages::python(&example(folder).join("requirements.txt"));
    let folder = example(folder);
    // A whole path stays as it is.
    let file = folder.join(file);
    move |shop| {
        let mut command = Command::new(&python);
        command
            .arg(&file)
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .env("PYTHONPATH", &folder)
            .env("DATABASE_URL", shop.url(scheme));
        command
    }
}

#[test]
fn psycopg() {
    let manifest = "python/requirements.txt";
    let shown = ["python/quickstart.py"];
    is_shown("Python: psycopg 3", &shown, Some(manifest), &["psycopg"]);
    is_all_or_nothing(python("python", "postgres", "quickstart.py"));
}

#[test]
fn sqlalchemy() {
    is_shown(
        "Python: SQLAlchemy 2",
        &["sqlalchemy/outbox.py", "sqlalchemy/quickstart.py"],
        Some("sqlalchemy/requirements.txt"),
        &["sqlalchemy", "psycopg"],
    );
    is_all_or_nothing(python("sqlalchemy", "postgresql+psycopg", "quickstart.py"));
}

/// The unit of work may order rows of two tables as it likes: the business row comes first, and
/// events in the order of their calls.
#[test]
fn the_unit_of_work_keeps_the_order_of_events() {
    let here = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/docs/sqlalchemy_order.py");
    let program = python("sqlalchemy", "postgresql+psycopg", here.to_str().unwrap());
    let shop = Shop::new();
    process::run(&mut program(&shop), LIMIT).expect_status(0);
    let delivered = shop.delivered();
    let payload = |event: &Value| event["payload"].as_str().unwrap().to_owned();
    let payloads: Vec<_> = delivered.iter().map(payload).collect();
    let expected: Vec<_> = (0..200).map(|number| number.to_string()).collect();
    assert_eq!(payloads, expected);
}

#[test]
fn django() {
    let manifest = "django/requirements.txt";
    let packages = ["django", "psycopg"];
    is_shown(
        "Python: Django",
        &["django/orders.py"],
        Some(manifest),
        &packages,
    );
    is_all_or_nothing(python("django", "postgres", "quickstart.py"));
}

fn node(folder: &str) -> impl Fn(&Shop) -> Command {
    let modules = packages::node(&example(folder).join("package.json"));
    let file = example(folder).join("quickstart.js");
    move |shop| {
        let mut node = Command::new("node");
        node.arg(&file)
            .env("NODE_PATH", &modules)
            .env("DATABASE_URL", shop.url("postgres"));
        node
    }
}

#[test]
fn pg() {
    let shown = ["node/quickstart.js"];
    is_shown("Node: pg", &shown, Some("node/package.json"), &["pg"]);
    is_all_or_nothing(node("node"));
}

#[test]
fn typeorm() {
    is_shown(
        "Node: TypeORM",
        &["typeorm/quickstart.js"],
        Some("typeorm/package.json"),
        &["typeorm", "pg"],
    );
    is_all_or_nothing(node("typeorm"));
}

#[test]
fn jdbc() {
    let shown = ["java/Quickstart.java"];
    is_shown(
        "Java: JDBC",
        &shown,
        Some("java/pom.xml"),
        &["org.postgresql", "postgresql"],
    );
    let jars = packages::java(&example("java").join("pom.xml"));
    is_all_or_nothing(|shop| {
        let mut java = Command::new("java");
        java.arg("-cp").arg(jars.join("*"));
        java.arg(example("java").join("Quickstart.java"))
            .env("DATABASE_URL", shop.jdbc_url());
        java
    });
}

#[test]
fn spring() {
    is_shown(
        "Java: Spring",
        &["spring/Orders.java"],
        Some("spring/pom.xml"),
        &["spring-boot-starter-jdbc", "postgresql"],
    );
    let jars = packages::java(&example("spring").join("pom.xml")).join("*");
    let classes = tempfile::tempdir().unwrap();
    let mut compiler = Command::new("javac");
    compiler
        .args(["-proc:none", "-d"])
        .arg(classes.path())
        .arg("-cp")
        .arg(&jars);
    for file in ["Orders.java", "Quickstart.java"] {
        compiler.arg(example("spring").join(file));
    }
    process::run(&mut compiler, LIMIT).expect_status(0);
    let class_path = format!("{}:{}", classes.path().display(), jars.display());
    is_all_or_nothing(|shop| {
        let mut java = Command::new("java");
        // The fewest optimisations: the program lives for a second.
        java.args([
            "-XX:TieredStopAtLevel=1",
            "-cp",
            &class_path,
            "shop.Quickstart",
        ])
        .env("DATABASE_URL", shop.jdbc_url());
        java
    });
}

#[test]
fn pgx() {
    let shown = ["go/quickstart.go"];
    let package = "github.com/jackc/pgx/v5";
    is_shown("Go: pgx 5", &shown, Some("go/go.mod"), &[package]);
    let folder = tempfile::tempdir().unwrap();
    let module = packages::go(&example("go"));
    for file in [
        module.join("go.mod"),
        module.join("go.sum"),
        example("go/quickstart.go"),
    ] {
        fs::copy(&file, folder.path().join(file.file_name().unwrap())).unwrap();
    }
    let mut build = Command::new("go");
    build
        .args(["build", "-o", "quickstart", "."])
        .current_dir(folder.path());
    process::run(&mut build, LIMIT).expect_status(0);
    is_all_or_nothing(|shop| {
        let mut program = Command::new(folder.path().join("quickstart"));
        program.env("DATABASE_URL", shop.url("postgres"));
        program
    });
}

#[test]
fn php() {
    let shown = ["php/quickstart.php"];
    is_shown("PHP: PDO", &shown, None, &["php-pgsql"]);
    is_all_or_nothing(|shop| {
        let mut php = Command::new("php");
        let (port, name) = (shop.server.port(), shop.database.name());
        let source = format!(
            "pgsql:host=127.0.0.1;port={port};dbname={name};user={}",
            shop.writer
        );
        php.arg(example("php/quickstart.php"))
            .env("DATABASE_URL", source);
        php
    });
}

/// No runtime of .NET is among the tests' tools: its statement is run with parameters of the types
/// that Npgsql sends for these values.
#[test]
fn the_statement_of_dotnet() {
    let shown = ["dotnet/Quickstart.cs"];
    let package = "Npgsql.EntityFrameworkCore.PostgreSQL";
    is_shown(".NET: Npgsql and EF Core", &shown, None, &[package]);
    let program = fs::read_to_string(example("dotnet/Quickstart.cs")).unwrap();
    let statement = program.split("\"\"\"").nth(1).unwrap();
    let statement = statement
        .replace("{payload}", "$1")
        .replace("{order.Id}", "$2")
        .replace("{headers}", "$3");
    assert!(!statement.contains('{'), "{statement}");
    let shop = Shop::new();
    let order = shop.database.psql(&format!(
        "set role {}; insert into orders (state) values ('placed') returning id",
        shop.writer
    ));
    let order = order.lines().last().unwrap();
    shop.database.psql(&format!(
        "set role {}; prepare emit (text, uuid, text[]) as {statement};
         execute emit ('[{{\"item\": \"book\", \"count\": 2}}]', '{order}', '{{source,shop}}')",
        shop.writer
    ));
    is_the_event_of(order, &shop.delivered());
}
