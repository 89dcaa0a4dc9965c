//! A way to a port that can be cut: what is on it then stays on its way, in both directions, as in a network that loses packets
//! and has them sent again. Nothing is closed by it. Knows no nodes.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{AbortHandle, JoinSet};

pub struct Link {
    is_cut: watch::Sender<bool>,
    task: AbortHandle,
}

impl Link {
    /// From the port `from` to the port `to`, of this host.
    pub async fn open(from: u16, to: u16) -> Link {
        let listener = TcpListener::bind(("127.0.0.1", from)).await.unwrap();
        let (is_cut, watched) = watch::channel(false);
        let task = tokio::spawn(pass(listener, to, watched)).abort_handle();
        Link { is_cut, task }
    }

    pub fn cut(&self, is_cut: bool) {
        self.is_cut.send_replace(is_cut);
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn pass(listener: TcpListener, to: u16, is_cut: watch::Receiver<bool>) {
    let mut connections = JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        connections.spawn(connect(stream, to, is_cut.clone()));
        while connections.try_join_next().is_some() {}
    }
}

async fn connect(near: TcpStream, to: u16, mut is_cut: watch::Receiver<bool>) {
    passes(&mut is_cut).await;
    // Where nobody listens the connection breaks, which is as much as a node hears of it.
    let Ok(far) = TcpStream::connect(("127.0.0.1", to)).await else { return };
    for stream in [&near, &far] {
        stream.set_nodelay(true).unwrap();
    }
    let ((near_reads, near_writes), (far_reads, far_writes)) = (near.into_split(), far.into_split());
    tokio::join!(pump(near_reads, far_writes, is_cut.clone()), pump(far_reads, near_writes, is_cut));
}

async fn pump(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut is_cut: watch::Receiver<bool>) {
    let mut chunk = vec![0; 64 << 10];
    while let Ok(len @ 1..) = from.read(&mut chunk).await {
        passes(&mut is_cut).await;
        if to.write_all(&chunk[..len]).await.is_err() {
            return;
        }
    }
}

async fn passes(is_cut: &mut watch::Receiver<bool>) {
    // It ends with its link, and then nobody waits any more.
    let _ = is_cut.wait_for(|is_cut| !is_cut).await;
}
