//! A proxy in front of PostgreSQL that takes conditions out of the statements that pass it.
//!
//! So the store under test is the shipped one, and what it sends is the shipped text: only what the
//! server gets to read differs.

use std::{
    io,
    net::Ipv4Addr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering::Relaxed},
    },
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, copy},
    net::{TcpListener, TcpStream, tcp::OwnedReadHalf, tcp::OwnedWriteHalf},
};

/// A text that a shipped statement has, and what the server reads in its place.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Cut {
    pub(crate) text: &'static str,
    pub(crate) instead: &'static str,
}

/// A proxy on a port of this machine; its connections end with the test's runtime.
#[derive(Debug)]
pub(crate) struct Rewriting {
    pub(crate) port: u16,
    /// How often each text was found.
    found: Vec<(Cut, Arc<AtomicUsize>)>,
}

impl Rewriting {
    pub(crate) async fn start(server: u16, cuts: &[Cut]) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let found: Vec<_> = cuts.iter().map(|cut| (*cut, Arc::default())).collect();
        let counted = found.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect((Ipv4Addr::LOCALHOST, server)).await;
                let (from_client, mut to_client) = client.into_split();
                let (mut from_server, to_server) = server.unwrap().into_split();
                let counted = counted.clone();
                // A connection that breaks is seen by both of its ends.
                tokio::spawn(async move { rewrite(from_client, to_server, &counted).await.ok() });
                tokio::spawn(async move { copy(&mut from_server, &mut to_client).await.ok() });
            }
        });
        Self { port, found }
    }

    /// Fails when a text never came by: then the statement is another one now, and nothing was
    /// taken out.
    pub(crate) fn assert_all_found(&self) {
        for (cut, found) in &self.found {
            let times = found.load(Relaxed);
            assert!(times > 0, "no statement has this text:\n{}", cut.text);
        }
    }
}

async fn rewrite(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    cuts: &[(Cut, Arc<AtomicUsize>)],
) -> io::Result<()> {
    // Version 3.0 of the protocol: until this comes, a client only asks for encryption. It has no
    // type either.
    const STARTUP: [u8; 4] = 196_608_u32.to_be_bytes();
    loop {
        let body = body(&mut from).await?;
        send(&mut to, None, &body).await?;
        if body.starts_with(&STARTUP) {
            break;
        }
    }
    loop {
        let kind = from.read_u8().await?;
        let mut body = body(&mut from).await?;
        // A statement to be prepared, and one without parameters.
        if matches!(kind, b'P' | b'Q') {
            // Numbers of types follow the text: each byte is taken for a character, and back.
            let mut text: String = body.into_iter().map(char::from).collect();
            for (cut, found) in cuts {
                found.fetch_add(text.matches(cut.text).count(), Relaxed);
                text = text.replace(cut.text, cut.instead);
            }
            let bytes: Result<_, _> = text.chars().map(u8::try_from).collect();
            body = bytes.map_err(io::Error::other)?;
        }
        send(&mut to, Some(kind), &body).await?;
    }
}

/// A message's body; its length counts itself.
async fn body(from: &mut OwnedReadHalf) -> io::Result<Vec<u8>> {
    let length = from.read_u32().await?;
    let length = usize::try_from(length).map_err(io::Error::other)?;
    let mut body = vec![0; length - size_of::<u32>()];
    from.read_exact(&mut body).await?;
    Ok(body)
}

async fn send(to: &mut OwnedWriteHalf, kind: Option<u8>, body: &[u8]) -> io::Result<()> {
    let length = u32::try_from(body.len() + size_of::<u32>()).map_err(io::Error::other)?;
    let mut message: Vec<u8> = kind.into_iter().collect();
    message.extend(length.to_be_bytes());
    message.extend(body);
    to.write_all(&message).await
}
