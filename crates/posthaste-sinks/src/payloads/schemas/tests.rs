//! Settings, and the login that a registry gets.

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};

use super::*;

fn refusal(url: &str, subject: Option<&str>) -> String {
    match Schemas::of(url, subject) {
        Err(error @ SinkError::Misconfigured { .. }) => error.to_string(),
        Err(other) => panic!("{other:?}"),
        Ok(_) => panic!("{url}: it was taken"),
    }
}

#[test]
fn wrong_settings_are_told_without_the_login() {
    for (url, subject, said) in [
        ("localhost:8081", None, "`schema_registry`"),
        ("ftp://u:hidden@h", None, "https://USER:PASSWORD@HOST:8081"),
        ("https://u:hidden@h,i", None, "one server"),
        ("https://u:hidden@h?colour=red", None, "an unknown option"),
        ("http://u:hidden@h?ca_file=/x", None, "`ca_file` is for TLS"),
        ("http://h", Some("{key}-value"), "`schema_subject`"),
        ("http://h", Some("}"), "no other braces"),
        ("http://h", Some(""), "`schema_subject`"),
    ] {
        let words = refusal(url, subject);
        assert!(words.contains(said), "{url}: {words}");
        assert!(!words.contains("hidden"), "{words}");
    }
    for (url, name) in [
        ("https://u:p@h/", "https://h"),
        ("http://h:1/a/b/", "http://h:1/a/b"),
        ("http://[::1]:2", "http://[::1]:2"),
    ] {
        let schemas = Schemas::of(url, Some("{type}")).unwrap();
        assert_eq!(schemas.registry.server.name(), name);
    }
}

#[tokio::test]
async fn a_registry_gets_the_login_and_the_escaped_subject() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let answering = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = vec![0; 4_096];
        let size = stream.read(&mut request).await.unwrap();
        let answer = "HTTP/1.1 401 No\r\nContent-Length: 0\r\n\r\n";
        stream.write_all(answer.as_bytes()).await.unwrap();
        String::from_utf8(request[..size].to_vec()).unwrap()
    });
    let url = format!("http://ann:p%40ss@127.0.0.1:{port}/base");
    let server = Server::of(&url).unwrap();
    let asked = subject::Asked {
        subject: "a/b ä-value".to_owned(),
        version: None,
    };
    let fault = server.schema(&asked).await.unwrap_err();
    let (fault, mend) = fault.told();
    let path = "/subjects/a%2Fb%20%C3%A4-value/versions/latest";
    assert!(
        fault.ends_with(&format!("answers 401 to GET {path}")),
        "{fault}"
    );
    assert!(mend.contains("correct the login"), "{mend}");
    let request = answering.await.unwrap();
    assert!(
        request.starts_with(&format!("GET /base{path} HTTP/1.1\r\n")),
        "{request}"
    );
    // ann:p@ss
    assert!(
        request.contains("authorization: Basic YW5uOnBAc3M=\r\n"),
        "{request}"
    );
}
