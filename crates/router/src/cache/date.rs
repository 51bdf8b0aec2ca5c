//! Dates in HTTP: the three forms of RFC 9110, 5.6.7. Names of days and months in any case; everything else as it is written there.

use jiff::civil::Date;

const EPOCH: Date = Date::constant(1970, 1, 1);
const DAYS: [&[u8]; 7] =
    [b"monday", b"tuesday", b"wednesday", b"thursday", b"friday", b"saturday", b"sunday"];
const MONTHS: &[u8; 36] = b"janfebmaraprmayjunjulaugsepoctnovdec";

/// Seconds since 1970 of an HTTP date; `None` for anything else. `now` tells which century a year of two digits is in.
pub fn date(text: &[u8], now: f64) -> Option<f64> {
    let text = text.trim_ascii();
    let comma = text.iter().position(|b| *b == b',');
    let (day, month, year, time) = match comma {
        // Sun, 06 Nov 1994 08:49:37 GMT
        Some(3) => {
            is_day(text.get(..3)?, 3)?;
            let rest = text.get(4..)?;
            match rest {
                [b' ', d1, d2, b' ', m1, m2, m3, b' ', y1, y2, y3, y4, b' ', time @ ..] => (
                    number(&[*d1, *d2])?,
                    month(&[*m1, *m2, *m3])?,
                    number(&[*y1, *y2, *y3, *y4])?,
                    gmt(time)?,
                ),
                _ => return None,
            }
        }
        // Sunday, 06-Nov-94 08:49:37 GMT
        Some(at) => {
            is_day(text.get(..at)?, at)?;
            match text.get(at + 1..)? {
                [b' ', d1, d2, b'-', m1, m2, m3, b'-', y1, y2, b' ', time @ ..] => (
                    number(&[*d1, *d2])?,
                    month(&[*m1, *m2, *m3])?,
                    full_year(number(&[*y1, *y2])?, now),
                    gmt(time)?,
                ),
                _ => return None,
            }
        }
        // Sun Nov  6 08:49:37 1994
        None => {
            is_day(text.get(..3)?, 3)?;
            match text.get(3..)? {
                [b' ', m1, m2, m3, b' ', d1, d2, b' ', time @ .., b' ', y1, y2, y3, y4] => (
                    if *d1 == b' ' { number(&[*d2])? } else { number(&[*d1, *d2])? },
                    month(&[*m1, *m2, *m3])?,
                    number(&[*y1, *y2, *y3, *y4])?,
                    clock(time)?,
                ),
                _ => return None,
            }
        }
    };
    let day =
        Date::new(i16::try_from(year).ok()?, i8::try_from(month).ok()?, i8::try_from(day).ok()?).ok()?;
    Some((day.duration_since(EPOCH).as_secs() + time) as f64)
}

/// A name of a day; abbreviated where three bytes are given. Whether it is the right one is not looked at.
fn is_day(text: &[u8], length: usize) -> Option<()> {
    let is = |day: &&[u8]| {
        if length == 3 { day[..3].eq_ignore_ascii_case(text) } else { day.eq_ignore_ascii_case(text) }
    };
    DAYS.iter().any(is).then_some(())
}

fn month(text: &[u8; 3]) -> Option<i64> {
    let at = MONTHS.chunks(3).position(|month| month.eq_ignore_ascii_case(text))?;
    i64::try_from(at + 1).ok()
}

fn number(digits: &[u8]) -> Option<i64> {
    let add = |sum: i64, b: &u8| b.is_ascii_digit().then(|| sum * 10 + i64::from(b - b'0'));
    digits.iter().try_fold(0, add)
}

/// Seconds of a day, out of `08:49:37 GMT`.
fn gmt(text: &[u8]) -> Option<i64> {
    match text {
        [time @ .., b' ', g, m, t] if [*g, *m, *t].eq_ignore_ascii_case(b"gmt") => clock(time),
        _ => None,
    }
}

fn clock(text: &[u8]) -> Option<i64> {
    let [h1, h2, b':', m1, m2, b':', s1, s2] = text else { return None };
    let (hour, minute, second) = (number(&[*h1, *h2])?, number(&[*m1, *m2])?, number(&[*s1, *s2])?);
    // 60 is a leap second.
    (hour < 24 && minute < 60 && second <= 60).then_some(hour * 3600 + minute * 60 + second)
}

/// More than 50 years ahead is the past: RFC 9110.
fn full_year(two_digits: i64, now: f64) -> i64 {
    let this_year = 1970 + (now / 31_556_952.0) as i64;
    let year = this_year - this_year % 100 + two_digits;
    if year > this_year + 50 { year - 100 } else { year }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const NOW: f64 = 1_763_000_000.0;

    fn parsed(text: &str) -> Option<f64> {
        date(text.as_bytes(), NOW)
    }

    #[test]
    fn three_forms_are_one_moment() {
        for text in [
            "Sun, 06 Nov 1994 08:49:37 GMT",
            "SUN, 06 nov 1994 08:49:37 gmt",
            "Mon, 06 Nov 1994 08:49:37 GMT",
            "Sunday, 06-Nov-94 08:49:37 GMT",
            "Sun Nov  6 08:49:37 1994",
            " Sun, 06 Nov 1994 08:49:37 GMT ",
        ] {
            assert_eq!(parsed(text), Some(784_111_777.0), "{text}");
        }
        assert_eq!(parsed("Thu, 01 Jan 1970 00:00:00 GMT"), Some(0.0));
        assert_eq!(parsed("Tue, 29 Feb 2000 23:59:60 GMT"), Some(951_868_800.0));
        assert_eq!(parsed("Thu, 18 Aug 2050 02:01:18 GMT"), Some(2_544_400_878.0));
        // 2070 is within 50 years, 2080 is not.
        assert!(parsed("Sunday, 06-Nov-70 08:49:37 GMT") > Some(NOW));
        assert!(parsed("Sunday, 06-Nov-80 08:49:37 GMT") < Some(NOW));
    }

    #[test]
    fn other_texts_are_no_dates() {
        for text in [
            "",
            "0",
            "-1",
            "never",
            "Sun, 06 Nov 1994 08:49:37 UTC",
            "Sun, 06 Nov 1994 08:49:37",
            "Sun, 6 Nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 94 08:49:37 GMT",
            "Sun 06 Nov 1994 08:49:37 GMT",
            "Sun, 06  Nov 1994 08:49:37 GMT",
            "Sun, 06-Nov-1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 08.49.37 GMT",
            "Sun, 06 Nov 1994 8:49:37 GMT",
            "Sun, 06 Nov 1994 24:00:00 GMT",
            "Sun, 31 Feb 1994 08:49:37 GMT",
            "Sun, 29 Feb 1900 08:49:37 GMT",
            "Sun, 00 Nov 1994 08:49:37 GMT",
            "Sun, 06 Foo 1994 08:49:37 GMT",
            "Foo, 06 Nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 1994 08:49:37 GMT, Sun, 06 Nov 1994 08:49:37 GMT",
            "784111777",
        ] {
            assert_eq!(parsed(text), None, "{text}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_a_date_or_none(text in proptest::collection::vec(any::<u8>(), 0..64), now in -1e12_f64..1e12) {
            let _ = date(&text, now);
        }

        #[test]
        fn what_is_written_is_read(seconds in 0_i64..32_503_680_000) {
            let written = httpdate_of(seconds);
            prop_assert_eq!(parsed(&written), Some(seconds as f64), "{}", written);
        }
    }

    /// By the calendar, day after day: another way than the one above.
    fn httpdate_of(seconds: i64) -> String {
        let (mut days, rest) = (seconds / 86_400, seconds % 86_400);
        let weekday = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"][(days % 7) as usize];
        let mut year = 1970;
        let leap = |year: i64| (year % 4 == 0 && year % 100 != 0) || year % 400 == 0;
        while days >= 365 + i64::from(leap(year)) {
            days -= 365 + i64::from(leap(year));
            year += 1;
        }
        let lengths = [31, 28 + i64::from(leap(year)), 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
        let mut month = 0;
        while days >= lengths[month] {
            days -= lengths[month];
            month += 1;
        }
        let name =
            ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"][month];
        let (hour, minute, second) = (rest / 3600, rest % 3600 / 60, rest % 60);
        format!("{weekday}, {:02} {name} {year} {hour:02}:{minute:02}:{second:02} GMT", days + 1)
    }
}
