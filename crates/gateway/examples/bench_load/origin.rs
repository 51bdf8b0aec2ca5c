//! An origin that echoes WebSocket messages and datagrams, sends any number of bytes (`…/down/BYTES`) and takes any number.

use std::io::Write;
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::sync::mpsc::{Sender, channel};
use std::thread;

use crate::{Failure, bulk, udp, websocket, wire};

pub(crate) fn serve(address: &str) -> Result<(), Failure> {
    let listener = TcpListener::bind(address)?;
    let (to_echo, from_handshake) = channel();
    thread::spawn(move || websocket::echo(&from_handshake));
    let datagrams = UdpSocket::bind(address)?;
    thread::spawn(move || udp::echo(&datagrams));
    for stream in listener.incoming() {
        let (Ok(stream), to_echo) = (stream, to_echo.clone()) else { continue };
        // A connection that fails is the load's to report.
        thread::spawn(move || answer(stream, &to_echo).ok());
    }
    Ok(())
}

fn answer(mut stream: TcpStream, to_echo: &Sender<(TcpStream, Vec<u8>)>) -> Result<(), Failure> {
    stream.set_nodelay(true)?;
    loop {
        let (head, rest) = wire::read_head(&mut stream)?;
        let path = head.split(' ').nth(1).unwrap_or_default();
        if wire::field(&head, "upgrade").is_some() {
            stream.write_all(websocket::ACCEPTED)?;
            return Ok(to_echo.send((stream, rest))?);
        } else if let Some(bytes) = path.split_once("/down/").and_then(|(_, bytes)| bytes.parse().ok()) {
            stream.write_all(format!("HTTP/1.1 200 OK\r\nContent-Length: {bytes}\r\n\r\n").as_bytes())?;
            bulk::send(&mut stream, bytes)?;
        } else {
            let length = wire::content_length(&head).unwrap_or(0);
            bulk::discard(&stream, length.saturating_sub(rest.len() as u64))?;
            stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")?;
        }
    }
}
