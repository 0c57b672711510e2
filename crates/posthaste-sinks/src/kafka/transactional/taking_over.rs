//! Takes over from former owners: their fences, and the events that they got through.

use posthaste_engine::SinkError;
use tokio::sync::oneshot;

use super::{
    super::{client::Client, topics},
    LaneContext, TransactionalPublisher, fence,
    progress::Keys,
    reading, worker,
};

/// Former owners whose fences are taken at the same time. Each takes a client.
const FENCES_AT_A_TIME: usize = 8;

impl TransactionalPublisher {
    /// Takes the fences of the former owners: what they had under way is ended then, and nothing
    /// comes after.
    pub(super) async fn fence_former(&self) -> Result<(), SinkError> {
        let settings = &self.context.settings;
        let own = self.scope.registration;
        let former: Vec<_> = self
            .scope
            .former
            .iter()
            .copied()
            .filter(|&id| id != own)
            .collect();
        let limit = fence::limit(self.publish_timeout);
        for some in former.chunks(FENCES_AT_A_TIME) {
            let mut taken = Vec::new();
            for &registration in some {
                let id = fence::transactional_id(&self.scope, registration);
                let config = settings.transactional(&id, self.publish_timeout);
                let (fenced_out, fenced) = oneshot::channel();
                let name = format!("kafka-fence-{}", self.number);
                let client = Client::start_with(&config, &settings.target, name, {
                    move |producer, shared| {
                        // The lane may have been given up meanwhile.
                        let _ = fenced_out.send(worker::take_fence(producer, shared, limit));
                    }
                })?;
                taken.push((client, fenced));
            }
            for (client, fenced) in taken {
                fence::expect(&client, &settings.target, fenced).await?;
            }
        }
        Ok(())
    }

    /// Reads what is not known to be behind the store.
    pub(super) async fn read_progress(&mut self) -> Result<(), SinkError> {
        let keys = Keys::of(&self.scope);
        let LaneContext {
            settings,
            progress_topic,
            unfinished,
            ..
        } = self.context.clone();
        let target = settings.target.clone();
        let (prefix, limit) = (keys.prefix().to_owned(), fence::limit(self.publish_timeout));
        let named = progress_topic.clone();
        let (tell, told) = oneshot::channel();
        tokio::task::spawn_blocking(move || {
            reading::read(&settings, &named, &prefix, limit, &unfinished, |found| {
                // The lane may have been given up meanwhile.
                let _ = tell.send(found);
            });
        });
        let found = told.await.map_err(|_| SinkError::Bug {
            target: target.clone(),
            reason: "the task that reads progress broke down".to_owned(),
        })??;
        for (key, value) in &found.records {
            let Some(slots) = keys.slots(key) else {
                continue;
            };
            let learned = self.progress.learn(&slots, value);
            learned.map_err(|reason| SinkError::Misconfigured {
                target: target.clone(),
                reason: format!(
                    "progress topic `{progress_topic}`: record `{}`: {reason}",
                    String::from_utf8_lossy(key)
                ),
            })?;
        }
        let partition = topics::partition_of(keys.prefix().as_bytes(), found.partitions);
        self.progress_partition = i32::try_from(partition).ok();
        Ok(())
    }
}
