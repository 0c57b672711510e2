//! Signatures, looked at by the libraries of others.

use std::{fs, path::Path, process::Command, time::Duration};

use libtest_mimic::Trial;
use posthaste_testkit::{packages, process::run, servers::http::WebhookServer};
use serde_json::json;

use super::{
    place::{Place, SECRET},
    trial,
};
use crate::driving::{accept, lane, plain};

/// A new secret, and the one before it.
const NEW_SECRET: &str = "whsec_oXnz8nFwGZk3VbEYb5iJ6m0u5LVdIhN8fRrPqV0jSmc=";

const PYTHON: &str = r#"
import base64, json, sys
from standardwebhooks import Webhook, WebhookVerificationError
requests, secrets = json.load(open(sys.argv[1])), sys.argv[2:]
for request in requests:
    body = base64.b64decode(request["body"])
    for secret in secrets:
        Webhook(secret).verify(body, request["headers"])
    try:
        Webhook(secrets[0]).verify(body + b" ", request["headers"])
        sys.exit("a changed body was verified")
    except WebhookVerificationError:
        pass
print("verified", len(requests))
"#;

const NODE: &str = r#"
const { readFileSync } = require("fs");
const { Webhook } = require("standardwebhooks");
const [file, ...secrets] = process.argv.slice(2);
const requests = JSON.parse(readFileSync(file, "utf8"));
for (const { headers, body } of requests) {
  const text = Buffer.from(body, "base64").toString("utf8");
  for (const secret of secrets) new Webhook(secret).verify(text, headers);
  let verified = true;
  try { new Webhook(secrets[0]).verify(text + " ", headers); } catch { verified = false; }
  if (verified) throw new Error("a changed body was verified");
}
console.log("verified", requests.length);
"#;

pub(super) fn trials() -> Vec<Trial> {
    vec![trial(
        "libraries_of_two_languages_verify_signatures",
        libraries_of_two_languages_verify_signatures,
    )]
}

async fn libraries_of_two_languages_verify_signatures() {
    let place = Place::new(WebhookServer::shared());
    for format in ["binary", "structured", "raw"] {
        let options = format!("&format={format}&secret={NEW_SECRET},{SECRET}");
        let mut events = plain(4);
        for event in &mut events {
            event.payload = Some("{\"ü\": \"馬\"}".into());
        }
        accept(&mut lane(&place.sink_with(&options)).await, &events).await;
    }
    let folder = tempfile::tempdir().unwrap();
    let requests: Vec<_> = place
        .requests()
        .into_iter()
        .map(|request| {
            use base64::{Engine as _, engine::general_purpose::STANDARD};
            let headers: serde_json::Map<_, _> = request
                .headers
                .into_iter()
                .map(|(name, value)| (name.to_ascii_lowercase(), value.into()))
                .collect();
            json!({ "headers": headers, "body": STANDARD.encode(request.body) })
        })
        .collect();
    let file = folder.path().join("requests.json");
    fs::write(&file, json!(requests).to_string()).unwrap();
    let kit = Path::new(env!("CARGO_MANIFEST_DIR")).join("../posthaste-testkit/src/servers/http");

    let script = folder.path().join("verify.py");
    fs::write(&script, PYTHON).unwrap();
    let mut python = Command::new(packages::python(&kit.join("requirements.txt")));
    verified(python.arg(script), &file);

    let script = folder.path().join("verify.js");
    fs::write(&script, NODE).unwrap();
    let mut node = Command::new("node");
    node.env("NODE_PATH", packages::node(&kit.join("package.json")));
    verified(node.arg(script), &file);
}

fn verified(command: &mut Command, requests: &Path) {
    let command = command.arg(requests).args([NEW_SECRET, SECRET]);
    let finished = run(command, Duration::from_secs(120)).expect_status(0);
    assert!(finished.stdout.contains("verified 12"), "{finished}");
}
