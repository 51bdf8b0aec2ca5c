//! Where the body of an answer ends. Pure: takes any bytes, never panics.
//!
//! For answers that ghost hands on as they come: a WebSocket that the origin refused.

/// How a body is framed, and how much of it is left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Framing {
    Length(u64),
    Chunked(Chunk),
    UntilClose,
}

/// Where in a chunked body we are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Chunk {
    /// In the line that says how long the next one is: its number, how many digits, and whether an extension has begun.
    Size {
        size: u64,
        digits: u8,
        extension: bool,
    },
    Data(u64),
    /// The line break after a chunk; so many of its two bytes are left.
    DataEnd(u8),
    /// In the trailer: how many bytes the line has until now, and how many bytes all of it.
    Trailer {
        line: usize,
        all: usize,
    },
    Done,
}

const LONGEST_TRAILER: usize = 16 << 10;

impl Framing {
    /// `None` where two readers could disagree on where the body ends.
    pub(crate) fn of_answer<'a>(
        status: u16,
        transfer_encoding: impl Iterator<Item = &'a [u8]>,
        content_length: impl Iterator<Item = &'a [u8]>,
    ) -> Option<Self> {
        if matches!(status, 204 | 304) {
            return Some(Self::Length(0));
        }
        let encodings: Vec<&[u8]> = transfer_encoding.collect();
        let mut lengths = content_length.map(length);
        let first = lengths.next();
        match (encodings.as_slice(), first) {
            ([], None) => Some(Self::UntilClose),
            ([], Some(first)) if lengths.all(|other| other == first) => first.map(Self::Length),
            ([one], None) if one.trim_ascii().eq_ignore_ascii_case(b"chunked") => {
                Some(Self::Chunked(Chunk::begin()))
            }
            _ => None,
        }
    }

    pub(crate) fn is_done(&self) -> bool {
        matches!(self, Self::Length(0) | Self::Chunked(Chunk::Done))
    }

    /// How many of these bytes belong to the body; `None` where they are no such body.
    pub(crate) fn take(&mut self, bytes: &[u8]) -> Option<usize> {
        match self {
            Self::UntilClose => Some(bytes.len()),
            Self::Length(left) => {
                let taken = (*left).min(bytes.len() as u64);
                *left -= taken;
                usize::try_from(taken).ok()
            }
            Self::Chunked(chunk) => chunk.take(bytes),
        }
    }
}

fn length(value: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(value.trim_ascii()).ok()?;
    let digits = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    digits.then(|| text.parse().ok())?
}

impl Chunk {
    fn begin() -> Self {
        Self::Size { size: 0, digits: 0, extension: false }
    }

    fn take(&mut self, bytes: &[u8]) -> Option<usize> {
        let mut at = 0;
        while at < bytes.len() && *self != Self::Done {
            if let Self::Data(left) = self {
                let taken = (*left).min((bytes.len() - at) as u64);
                *left -= taken;
                at += usize::try_from(taken).ok()?;
                if *left == 0 {
                    *self = Self::DataEnd(2);
                }
                continue;
            }
            self.step(bytes[at])?;
            at += 1;
        }
        Some(at)
    }

    /// One byte outside of a chunk's data.
    fn step(&mut self, byte: u8) -> Option<()> {
        *self = match self.clone() {
            Self::Size { size, digits: 1.., .. } if byte == b'\n' => {
                if size == 0 {
                    Self::Trailer { line: 0, all: 0 }
                } else {
                    Self::Data(size)
                }
            }
            Self::Size { size, digits, extension: false } if byte.is_ascii_hexdigit() && digits < 15 => {
                let digit = char::from(byte).to_digit(16)?;
                Self::Size { size: size * 16 + u64::from(digit), digits: digits + 1, extension: false }
            }
            Self::Size { size, digits: digits @ 1.., extension } if byte != b'\n' => {
                let begins = matches!(byte, b';' | b' ' | b'\t' | b'\r');
                if !extension && !begins {
                    return None;
                }
                Self::Size { size, digits, extension: true }
            }
            Self::DataEnd(2) if byte == b'\r' => Self::DataEnd(1),
            Self::DataEnd(1) if byte == b'\n' => Self::begin(),
            Self::Trailer { all, .. } if all >= LONGEST_TRAILER => return None,
            Self::Trailer { line: 0, .. } if byte == b'\n' => Self::Done,
            Self::Trailer { all, .. } if byte == b'\n' => Self::Trailer { line: 0, all: all + 1 },
            Self::Trailer { line, all } if byte == b'\r' => Self::Trailer { line, all: all + 1 },
            Self::Trailer { line, all } => Self::Trailer { line: line + 1, all: all + 1 },
            _ => return None,
        };
        Some(())
    }
}
