//! Streams of Kinesis.

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use super::MotoServer;

/// A record as a consumer reads it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamRecord {
    /// The key by which its shard was chosen.
    pub partition_key: String,
    /// Its bytes.
    pub data: Vec<u8>,
}

impl StreamRecord {
    fn of(record: &Value) -> Self {
        let text = |name: &str| record[name].as_str().expect("a text");
        Self {
            partition_key: text("PartitionKey").to_owned(),
            data: STANDARD.decode(text("Data")).expect("base64"),
        }
    }
}

/// A consumer of all shards of a stream.
#[derive(Debug)]
pub struct StreamReader {
    /// Where it reads on in each shard.
    places: Vec<Value>,
}

impl StreamReader {
    /// All that came since the last call, one shard after the other, each in its order.
    ///
    /// # Panics
    ///
    /// When the server refuses.
    pub fn records(&mut self, server: &MotoServer) -> Vec<StreamRecord> {
        let mut all = Vec::new();
        for place in &mut self.places {
            loop {
                let question = json!({ "ShardIterator": place });
                let mut told = server.expect_kinesis("GetRecords", &question);
                *place = told["NextShardIterator"].take();
                let records = told["Records"].as_array().expect("a list of records");
                if records.is_empty() {
                    break;
                }
                all.extend(records.iter().map(StreamRecord::of));
            }
        }
        all
    }
}

impl MotoServer {
    /// Makes a stream of so many shards.
    ///
    /// # Panics
    ///
    /// When the server refuses.
    pub fn create_stream(&self, stream: &str, shards: usize) {
        let question = json!({ "StreamName": stream, "ShardCount": shards });
        self.expect_kinesis("CreateStream", &question);
    }

    /// Deletes a stream with its records.
    ///
    /// # Panics
    ///
    /// When the server refuses.
    pub fn delete_stream(&self, stream: &str) {
        self.expect_kinesis("DeleteStream", &json!({ "StreamName": stream }));
    }

    /// Asks Kinesis for something that it does not refuse.
    ///
    /// # Panics
    ///
    /// When the server refuses.
    pub fn expect_kinesis(&self, action: &str, question: &Value) -> Value {
        let answer = self.client().ask_kinesis(action, question);
        answer.unwrap_or_else(|refusal| panic!("{action}: {refusal}"))
    }

    /// A consumer of a stream, which has read nothing yet.
    ///
    /// # Panics
    ///
    /// When the server refuses.
    #[must_use]
    pub fn stream_reader(&self, stream: &str) -> StreamReader {
        let shards = self.expect_kinesis("ListShards", &json!({ "StreamName": stream }));
        let shards = shards["Shards"].as_array().expect("a list of shards");
        let begin = |shard: &Value| {
            let question = json!({
                "StreamName": stream,
                "ShardId": shard["ShardId"],
                "ShardIteratorType": "TRIM_HORIZON",
            });
            self.expect_kinesis("GetShardIterator", &question)["ShardIterator"].take()
        };
        StreamReader {
            places: shards.iter().map(begin).collect(),
        }
    }

    /// All that a stream has, one shard after the other, each in its order.
    ///
    /// # Panics
    ///
    /// When the server refuses.
    #[must_use]
    pub fn stream_records(&self, stream: &str) -> Vec<StreamRecord> {
        self.stream_reader(stream).records(self)
    }

    /// From now on refuses the records of a stream that have these keys, each with its code, as
    /// Kinesis does in the midst of others that it takes. For the key `*` it refuses requests as a
    /// whole. Without keys it takes all again.
    ///
    /// # Panics
    ///
    /// When the server is gone.
    pub fn refuse(&self, stream: &str, codes: &[(&str, &str)]) {
        let codes = codes.iter().map(|(key, code)| format!("{key}={code}"));
        let codes: Vec<_> = codes.collect();
        let _ = self
            .client()
            .get(&format!("/refuse/{stream}?{}", codes.join("&")));
    }
}
