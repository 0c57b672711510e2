//! The bare client of what is spoken to in requests of HTTP: reqwest, with so many under way.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use anyhow::Result;
use reqwest::Client;
use tokio::task::JoinSet;

/// Makes `count` requests, up to `under_way` at once; returns when each has its answer.
pub(crate) fn make<Made: Future<Output = Result<()>> + Send>(
    count: u64,
    under_way: usize,
    request: impl Fn(Client, u64) -> Made + Send + Sync + 'static,
) -> Result<()> {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()?
        .block_on(async {
            let client = Client::builder().no_proxy().build()?;
            let (request, next) = (Arc::new(request), Arc::new(AtomicU64::default()));
            let mut lines = JoinSet::new();
            for _ in 0..under_way {
                let (client, next) = (client.clone(), Arc::clone(&next));
                let request = Arc::clone(&request);
                lines.spawn(async move {
                    loop {
                        let number = next.fetch_add(1, Ordering::Relaxed);
                        if number >= count {
                            return anyhow::Ok(());
                        }
                        request(client.clone(), number).await?;
                    }
                });
            }
            while let Some(ended) = lines.join_next().await {
                ended??;
            }
            Ok(())
        })
}
