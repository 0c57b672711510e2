//! TLS for sinks that make connections all the time.

use std::{fmt, time::Duration};

use tokio::{net::TcpStream, sync::Mutex, time::Instant};
use tokio_rustls::{TlsConnector, client::TlsStream};

use super::{Tls, TransportError};

/// Files are read again after this time, so that a renewed one counts.
const AGE_MAX: Duration = Duration::from_secs(60);

/// TLS by what its files said a while ago.
pub(crate) struct KeptTls {
    tls: Tls,
    connector: Mutex<Option<(Instant, TlsConnector)>>,
}

impl fmt::Debug for KeptTls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.tls.fmt(f)
    }
}

impl KeptTls {
    pub(crate) fn new(tls: Tls) -> Self {
        Self {
            tls,
            connector: Mutex::new(None),
        }
    }

    /// As [`Tls::wrap`].
    pub(crate) async fn wrap(
        &self,
        host: &str,
        stream: TcpStream,
    ) -> Result<TlsStream<TcpStream>, TransportError> {
        let connector = self.connector().await?;
        let wrapped = self.tls.wrap_by(&connector, host, stream).await;
        if wrapped.is_err() {
            // The files may have been the fault, and mended.
            *self.connector.lock().await = None;
        }
        wrapped
    }

    async fn connector(&self) -> Result<TlsConnector, TransportError> {
        let mut kept = self.connector.lock().await;
        if let Some((since, connector)) = &*kept
            && since.elapsed() < AGE_MAX
        {
            return Ok(connector.clone());
        }
        let connector = self.tls.connector().await?;
        *kept = Some((Instant::now(), connector.clone()));
        Ok(connector)
    }
}
