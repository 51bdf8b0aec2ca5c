use super::*;

async fn read(mut bytes: &[u8]) -> Result<Answer> {
    read_answer(&mut bytes, "test").await
}

#[tokio::test]
async fn an_answer_is_header_body_and_newline() {
    let answer = read(b"200 12      \nsome\nlines\nX\n").await.unwrap();
    assert_eq!(answer, Answer { status: 200, body: "some\nlines\nX".into() });
    assert_eq!(read(b"300 0       \n\n").await.unwrap(), Answer { status: 300, body: String::new() });
}

#[tokio::test]
async fn a_body_in_another_encoding_is_taken() {
    assert_eq!(read(b"200 1       \n\xff\n").await.unwrap().body, "\u{fffd}");
}

#[tokio::test]
async fn whatever_else_is_garbage() {
    for bytes in [
        b"HTTP/1.1 400 Bad Request\r\n\r\n".as_slice(),
        b"20  12      \nabc",
        b"2000 2      \nab\n",
        b"200  2      \nab\n",
        b"200 -2      \nab\n",
        b"200 +2      \nab\n",
        b"200 2 3     \nab\n",
        b"200         \nab\n",
        b"200 2       \rab\n",
        b"200 \xff       \nab\n",
        b"200 2       \nabc\n",
    ] {
        let result = read(bytes).await;
        assert!(matches!(result, Err(Error::Garbage { .. })), "{} gives {result:?}", bytes.escape_ascii());
    }
}

#[tokio::test]
async fn a_cut_answer_means_that_varnishd_closed() {
    for bytes in [b"".as_slice(), b"200 2  ", b"200 2       \n", b"200 2       \na", b"200 2       \nab"] {
        let result = read(bytes).await;
        assert!(matches!(result, Err(Error::Closed { .. })), "{} gives {result:?}", bytes.escape_ascii());
    }
}

#[tokio::test]
async fn an_answer_over_the_limit_is_not_read() {
    assert!(matches!(
        read(b"200 99999999\n").await,
        Err(Error::TooLarge { length: 99_999_999, limit: ANSWER_LIMIT, .. })
    ));
}
