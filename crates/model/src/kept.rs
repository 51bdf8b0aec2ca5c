//! What front and ghost say to each other about the response to a POST that the cache is to store.

use std::fmt;

/// A place in the order of invalidations of one process of varnishd's child. Written as two numbers in hexadecimal digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Order {
    /// Random: tells this process from those before it, whose numbers mean nothing here.
    pub process: u64,
    /// The number of the newest invalidation.
    pub number: u64,
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}-{:016x}", self.process, self.number)
    }
}

impl Order {
    pub fn parse(text: &[u8]) -> Option<Self> {
        let (process, number) = halves(text)?;
        Some(Self { process, number })
    }
}

/// By which the front finds a response that it keeps. Random, and good for one use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Token(pub [u64; 2]);

impl fmt::Display for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}-{:016x}", self.0[0], self.0[1])
    }
}

impl Token {
    pub fn parse(text: &[u8]) -> Option<Self> {
        halves(text).map(|(first, second)| Self([first, second]))
    }
}

/// A response that the front keeps, and the invalidation that was its own: `TOKEN ORDER`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kept {
    pub token: Token,
    pub order: Order,
}

impl fmt::Display for Kept {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.token, self.order)
    }
}

impl Kept {
    pub fn parse(text: &[u8]) -> Option<Self> {
        let at = text.iter().position(|byte| *byte == b' ')?;
        Some(Self { token: Token::parse(&text[..at])?, order: Order::parse(&text[at + 1..])? })
    }
}

/// Two numbers of 16 digits each, in one spelling.
fn halves(text: &[u8]) -> Option<(u64, u64)> {
    let number = |digits: &[u8]| {
        let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
        let digits = std::str::from_utf8(digits).ok().filter(|text| text.bytes().all(|b| is_digit(&b)))?;
        u64::from_str_radix(digits, 16).ok()
    };
    match (text.len(), text.get(16)) {
        (33, Some(b'-')) => Some((number(&text[..16])?, number(&text[17..])?)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let kept = Kept { token: Token([1, u64::MAX]), order: Order { process: 7, number: 0 } };
        let text = kept.to_string();
        assert_eq!(Kept::parse(text.as_bytes()), Some(kept));
        assert_eq!(Token::parse(&text.as_bytes()[..33]), Some(kept.token));
        assert_eq!(Order::parse(&text.as_bytes()[34..]), Some(kept.order));
    }

    #[test]
    fn anything_else_is_nothing() {
        let good = Order { process: 0xabc, number: 0xdef }.to_string();
        for bad in [
            "",
            "-",
            &good[1..],
            &format!("{good}0"),
            &good.to_uppercase(),
            &good.replace('-', "+"),
            &good.replace('0', "+"),
        ] {
            assert_eq!(Order::parse(bad.as_bytes()), None, "{bad}");
            assert_eq!(Kept::parse(bad.as_bytes()), None, "{bad}");
        }
        assert_eq!(Kept::parse(format!("{good}  {good}").as_bytes()), None);
    }
}
