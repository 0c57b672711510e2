//! Runs every SQL block of docs/sql-contract.md.
#![allow(clippy::unwrap_used, reason = "helpers of tests are tests too")]

use posthaste_testkit::servers::mysql::Version;

use crate::support::{MysqlOutboxes, Outboxes, SqliteFile};
use sqlx::{AssertSqlSafe, Row, ValueRef};

const DOCUMENT: &str = include_str!("../../../docs/sql-contract.md");

/// One fenced block and what the page says of it.
struct Block {
    sql: String,
    admin: bool,
    error: Option<String>,
    answers: Option<String>,
}

fn blocks(text: &str) -> Vec<Block> {
    let mut blocks = Vec::new();
    let mut rest = text;
    while let Some((_, after)) = rest.split_once("```sql") {
        let (info, after) = after.split_once('\n').unwrap();
        let (sql, after) = after.split_once("```").unwrap();
        let said = |what: &str| {
            sql.lines()
                .find_map(|line| line.strip_prefix(what))
                .map(|said| said.trim().to_owned())
        };
        blocks.push(Block {
            sql: sql.to_owned(),
            admin: info.trim() == "admin",
            error: said("-- error:"),
            answers: said("-- answers:"),
        });
        rest = after;
    }
    blocks
}

fn check<R>(block: &Block, result: Result<Vec<R>, sqlx::Error>, text: impl Fn(&R) -> String) {
    match (&block.error, result) {
        (None, Ok(rows)) => {
            if let Some(answers) = &block.answers {
                let last = rows.last().map(text);
                assert_eq!(last.as_ref(), Some(answers), "{}", block.sql);
            }
        }
        (Some(said), Err(error)) => {
            assert!(error.to_string().contains(said), "{}: {error}", block.sql);
        }
        (None, Err(error)) => panic!("{}: {error}", block.sql),
        (Some(_), Ok(_)) => panic!("this should have failed: {}", block.sql),
    }
}

#[tokio::test]
async fn postgres() {
    let outboxes = Outboxes::without_rights();
    let writer = &outboxes.writer;
    outboxes.rows(&format!(
        "create table orders (id text primary key, state text); grant insert on orders to {writer}"
    ));
    let mut connections = [
        outboxes.sqlx(&outboxes.writer_url()).await,
        outboxes.sqlx(&outboxes.admin_url()).await,
    ];

    let (page, _) = DOCUMENT.split_once("\n## SQLite").unwrap();
    let blocks = blocks(page);
    assert!(blocks.len() > 10);
    for block in &blocks {
        // Roles belong to the whole server, so the test's own takes the place of the page's.
        let sql = block.sql.replace(" shop", &format!(" {writer}"));
        let query = sqlx::raw_sql(AssertSqlSafe(sql));
        let rows = query
            .fetch_all(&mut connections[usize::from(block.admin)])
            .await;
        check(block, rows, |row| {
            row.try_get_raw(0).unwrap().as_str().unwrap().to_owned()
        });
    }
    let published = "select count(*) from posthaste.outbox where topic = 'orders'";
    assert_eq!(outboxes.rows(published), "13");
    let never = "select count(*) from posthaste.outbox where payload = 'never published'";
    assert_eq!(outboxes.rows(never), "0");
}

#[tokio::test]
async fn sqlite() {
    let file = SqliteFile::new().await;
    let mut connection = file.connect().await;
    let (_, page) = DOCUMENT.split_once("\n## SQLite").unwrap();
    let (page, _) = page.split_once("\n## MySQL").unwrap();
    let blocks = blocks(page);
    assert!(blocks.len() > 2);
    for block in &blocks {
        let rows = sqlx::raw_sql(AssertSqlSafe(&*block.sql))
            .fetch_all(&mut connection)
            .await;
        check(block, rows, |row| {
            assert!(!row.try_get_raw(0).unwrap().is_null());
            row.get(0)
        });
    }
    let events = posthaste::testing::emitted(&mut connection).await.unwrap();
    assert_eq!(events.len(), 3);
    assert_eq!(events[0].payload().unwrap(), r#"{"total": 12.5}"#);
    assert_eq!(events[0].id().get_version_num(), 7);
    assert_eq!(events[1].headers().len(), 3);
    assert_eq!(events[1].headers()[2], ("no-value".to_owned(), None));
    assert_eq!(events[2].key(), Some("42"));
    assert_eq!(events[1].occurred_at().as_micros(), 1_700_000_000_123_456);
}

#[tokio::test]
async fn mysql() {
    let (_, page) = DOCUMENT.split_once("\n## MySQL").unwrap();
    let blocks = blocks(page);
    assert!(blocks.len() > 6);
    for version in Version::ALL {
        let outboxes = MysqlOutboxes::without_rights(version);
        let account = format!("{}@'127.0.0.1'", outboxes.writer);
        outboxes.rows(&format!(
            "create table orders (id varchar(40) primary key, state varchar(40)); \
             grant insert on orders to {account}"
        ));
        let mut administrator = outboxes.sqlx(&outboxes.admin_url()).await;
        let mut writer = None;
        for block in &blocks {
            if block.error.is_some() && !version.has_checks() {
                continue;
            }
            let sql = block.sql.replace(" to shop", &format!(" to {account}"));
            // A user may choose the database once it has a right in it.
            let connection = if block.admin {
                &mut administrator
            } else {
                if writer.is_none() {
                    writer = Some(outboxes.sqlx(&outboxes.writer_url()).await);
                }
                writer.as_mut().unwrap()
            };
            let rows = sqlx::raw_sql(AssertSqlSafe(sql))
                .fetch_all(connection)
                .await;
            check(block, rows, |row| row.get(0));
        }
        let payloads = "select group_concat(hex(payload) order by seq) from posthaste_outbox \
                        where topic = 'orders'";
        let expected = "7B22746F74616C223A2031322E357D,00FFFE,6D6F766564";
        assert_eq!(outboxes.rows(payloads), expected);
    }
}
