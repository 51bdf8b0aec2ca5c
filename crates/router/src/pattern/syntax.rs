//! The text of a pattern, read so that it is about bytes.

use regex_syntax::ast::{self, Ast, Flag, GroupKind};
use regex_syntax::hir::translate::TranslatorBuilder;
use regex_syntax::hir::{self, Hir};

use super::{Error, shown};

/// The API server allows 4096 bytes at most.
const LONGEST: usize = 8 << 10;
const DEEPEST: u32 = 100;

/// `.` is any byte, line breaks included: otherwise a value with an unusual byte would slip past the pattern.
pub(super) fn parse(pattern: &str) -> Result<Hir, Error> {
    if pattern.len() > LONGEST {
        return Err(Error::TooLarge { pattern: shown(pattern) });
    }
    let unicode =
        |part: &ast::Span| Error::Unicode { pattern: shown(pattern), part: text(pattern, part).to_owned() };
    let syntax = |cause: String| Error::Syntax { pattern: shown(pattern), cause };
    let mut parser = ast::parse::ParserBuilder::new().nest_limit(DEEPEST).build();
    let ast = parser.parse(pattern).map_err(|error| syntax(error.kind().to_string()))?;
    ast::visit(&ast, UnicodeFlag).map_err(|span| unicode(&span))?;
    let mut translator =
        TranslatorBuilder::new().unicode(false).utf8(false).dot_matches_new_line(true).build();
    translator.translate(pattern, &ast).map_err(|error| match error.kind() {
        hir::ErrorKind::UnicodeNotAllowed
        | hir::ErrorKind::UnicodePropertyNotFound
        | hir::ErrorKind::UnicodePropertyValueNotFound
        | hir::ErrorKind::UnicodePerlClassNotFound
        | hir::ErrorKind::UnicodeCaseUnavailable => unicode(error.span()),
        kind => syntax(kind.to_string()),
    })
}

fn text<'p>(pattern: &'p str, span: &ast::Span) -> &'p str {
    pattern.get(span.start.offset..span.end.offset).unwrap_or(pattern)
}

/// Finds where a pattern switches Unicode on. An error is its place.
struct UnicodeFlag;

impl ast::Visitor for UnicodeFlag {
    type Output = ();
    type Err = ast::Span;

    fn finish(self) -> Result<(), ast::Span> {
        Ok(())
    }

    fn visit_pre(&mut self, ast: &Ast) -> Result<(), ast::Span> {
        let flags = match ast {
            Ast::Flags(set) => Some(&set.flags),
            Ast::Group(group) => match &group.kind {
                GroupKind::NonCapturing(flags) => Some(flags),
                _ => None,
            },
            _ => None,
        };
        match flags.and_then(|flags| flags.flag_state(Flag::Unicode)) {
            Some(true) => Err(*ast.span()),
            _ => Ok(()),
        }
    }
}
