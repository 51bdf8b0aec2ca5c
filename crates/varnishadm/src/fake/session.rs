use std::io;
use std::net::SocketAddr;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::sleep;

use super::{Fake, Greeting, Reply, Tokenizer};

const CHALLENGE: &str = "aqbvfasomjnirsmjbzvbsrgoelqthwjy";

pub(super) async fn run(fake: &Fake, address: SocketAddr) -> io::Result<()> {
    let mut stream = TcpStream::connect(address).await?;
    // So that pieces leave as pieces.
    stream.set_nodelay(true)?;

    let mut wanted = None;
    match &fake.greeting {
        Greeting::Banner(banner) => answer(&mut stream, 200, banner).await?,
        Greeting::Challenge(secret, banner) => {
            answer(&mut stream, 107, &format!("{CHALLENGE}\n\nAuthentication required.\n")).await?;
            wanted = Some((secret.respond(CHALLENGE.as_bytes()), banner));
        }
        Greeting::Raw(bytes) => stream.write_all(bytes).await?,
        Greeting::Silence => {}
    }

    let mut tokenizer = Tokenizer::default();
    let mut buffer = vec![0; 1 << 16];
    loop {
        let length = stream.read(&mut buffer).await?;
        if length == 0 {
            return Ok(());
        }
        for byte in &buffer[..length] {
            let words = match tokenizer.feed(*byte) {
                Some(Ok(words)) => words,
                Some(Err(why)) => {
                    answer(&mut stream, 100, &format!("Syntax Error: {why}\n")).await?;
                    continue;
                }
                None => continue,
            };
            if let Some((response, banner)) = wanted.take() {
                if words != ["auth", &response] {
                    return answer(&mut stream, 500, "").await;
                }
                answer(&mut stream, 200, banner).await?;
                continue;
            }
            match fake.reply(&words) {
                Reply::Answer { status, body } => answer(&mut stream, status, &body).await?,
                Reply::Late { status, body, after } => {
                    sleep(after).await;
                    answer(&mut stream, status, &body).await?;
                }
                Reply::Pieces { status, body, size, pause } => {
                    for piece in encode(status, &body).chunks(size.max(1)) {
                        stream.write_all(piece).await?;
                        sleep(pause).await;
                    }
                }
                Reply::Raw(bytes) => stream.write_all(&bytes).await?,
                Reply::Die(bytes) => return stream.write_all(&bytes).await,
                Reply::Silence => {}
            }
        }
    }
}

async fn answer(stream: &mut TcpStream, status: u16, body: &str) -> io::Result<()> {
    stream.write_all(&encode(status, body)).await
}

fn encode(status: u16, body: &str) -> Vec<u8> {
    format!("{status:<3} {:<8}\n{body}\n", body.len()).into_bytes()
}
