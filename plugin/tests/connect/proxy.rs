//! Stubs of an HTTP CONNECT proxy and of a SOCKS5 proxy. Both lead to the API stub, whatever host is asked for.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex},
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

#[derive(Clone, Copy)]
pub enum Kind {
    Http,
    Socks5,
}

/// What each connection asked for, with its credentials.
#[derive(Clone)]
pub struct Proxy {
    pub address: SocketAddr,
    seen: Arc<Mutex<Vec<String>>>,
}

impl Proxy {
    pub async fn start(kind: Kind, api: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let proxy = Self { address: listener.local_addr().unwrap(), seen: Arc::default() };
        let seen = proxy.seen.clone();
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(kind, stream, api, seen.clone()));
            }
        });
        proxy
    }

    pub fn seen(&self) -> Vec<String> {
        self.seen.lock().unwrap().clone()
    }
}

async fn serve(
    kind: Kind,
    mut client: TcpStream,
    api: SocketAddr,
    seen: Arc<Mutex<Vec<String>>>,
) -> std::io::Result<()> {
    let asked = match kind {
        Kind::Http => connect_request(&mut client).await?,
        Kind::Socks5 => socks_request(&mut client).await?,
    };
    seen.lock().unwrap().push(asked);
    let mut server = TcpStream::connect(api).await?;
    match kind {
        Kind::Http => client.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await?,
        Kind::Socks5 => client.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0]).await?,
    }
    tokio::io::copy_bidirectional(&mut client, &mut server).await.map(drop)
}

/// Target and, if there is one, the proxy credential.
async fn connect_request(client: &mut TcpStream) -> std::io::Result<String> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(client.read_u8().await?);
    }
    let head = String::from_utf8_lossy(&head).to_ascii_lowercase();
    let target = head.split(' ').nth(1).unwrap_or_default();
    let credential = head.lines().find_map(|l| l.strip_prefix("proxy-authorization: ")).unwrap_or_default();
    Ok(format!("{target} {credential}").trim_end().to_owned())
}

async fn socks_request(client: &mut TcpStream) -> std::io::Result<String> {
    let mut methods = vec![
        0;
        usize::from({
            client.read_u8().await?;
            client.read_u8().await?
        })
    ];
    client.read_exact(&mut methods).await?;
    client.write_all(&[5, 0]).await?;
    let mut head = [0; 4];
    client.read_exact(&mut head).await?;
    let mut address = vec![0; if head[3] == 3 { usize::from(client.read_u8().await?) } else { 4 }];
    client.read_exact(&mut address).await?;
    let port = client.read_u16().await?;
    let host = if head[3] == 3 { String::from_utf8_lossy(&address).into_owned() } else { format!("{address:?}") };
    Ok(format!("{host}:{port}"))
}
