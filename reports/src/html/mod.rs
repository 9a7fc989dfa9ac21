//! `report.html`: everything in one file that needs no network, for light and dark screens and for paper.

mod escape;

use std::fmt::Write;

use crate::definitions::{self, Definition};
use crate::plots::Plot;
use crate::table::Table;
use escape::escape;

const STYLE: &str = include_str!("style.css");

/// A plot, drawn.
pub(crate) struct Drawn<'a> {
    pub(crate) plot: &'a Plot,
    pub(crate) svg: String,
}

/// What a page shows, from top to bottom.
pub(crate) struct Page<'a> {
    pub(crate) title: &'a str,
    /// The sentences to remember.
    pub(crate) headline: Vec<String>,
    pub(crate) facts: &'a [(String, String)],
    /// Tables under their headings.
    pub(crate) tables: &'a [(&'static str, Table)],
    pub(crate) plots: &'a [Drawn<'a>],
    pub(crate) notes: &'a [String],
    /// A file that says how it came to be, under its title.
    pub(crate) yaml: (&'static str, &'a str),
}

impl Page<'_> {
    /// The whole document.
    pub(crate) fn html(&self) -> String {
        let title = escape(self.title);
        let sections = [
            headline(&self.headline),
            facts(self.facts),
            self.tables.iter().map(|(heading, content)| format!("<h2>{heading}</h2>\n{}", table(content))).collect(),
            self.plots.iter().map(figure).collect(),
            what_it_means(),
            notes(self.notes),
            source(self.yaml),
        ];
        format!(
            "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
             <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
             <meta name=\"color-scheme\" content=\"light dark\">\n<title>{title}</title>\n<style>\n{STYLE}</style>\n</head>\n\
             <body>\n<main>\n<h1>{title}</h1>\n{}</main>\n</body>\n</html>\n",
            sections.concat()
        )
    }
}

fn headline(sentences: &[String]) -> String {
    if sentences.is_empty() {
        return String::new();
    }
    let sentences: String = sentences.iter().map(|sentence| format!("<p>{}</p>\n", escape(sentence))).collect();
    format!("<section class=\"headline\">\n{sentences}</section>\n")
}

fn facts(facts: &[(String, String)]) -> String {
    if facts.is_empty() {
        return String::new();
    }
    let fact =
        |(name, value): &(String, String)| format!("<div><dt>{}</dt><dd>{}</dd></div>\n", escape(name), escape(value));
    format!("<dl class=\"facts\">\n{}</dl>\n", facts.iter().map(fact).collect::<String>())
}

fn table(table: &Table) -> String {
    let mut html = String::from("<div class=\"scroll\"><table>\n<thead><tr><th></th><th>unit</th>");
    for column in &table.columns {
        push(&mut html, format_args!("<th>{}</th>", escape(column)));
    }
    html.push_str("</tr></thead>\n");
    for section in &table.sections {
        let width = table.columns.len() + 2;
        push(
            &mut html,
            format_args!(
                "<tbody>\n<tr class=\"section\"><th colspan=\"{width}\"{}>{}</th></tr>\n",
                tooltip(section.definition),
                escape(&section.heading)
            ),
        );
        for row in &section.rows {
            let (name, unit) = (escape(&row.name), escape(&row.unit));
            push(&mut html, format_args!("<tr><th{}>{name}</th><td>{unit}</td>", tooltip(row.definition)));
            for cell in &row.cells {
                push(&mut html, format_args!("<td class=\"number\">{}</td>", escape(cell)));
            }
            html.push_str("</tr>\n");
        }
        html.push_str("</tbody>\n");
    }
    html + "</table></div>\n"
}

fn tooltip(definition: Option<Definition>) -> String {
    definition.map_or_else(String::new, |definition| format!(" title=\"{}\"", escape(definition.text)))
}

/// A plot; its size comes from the page.
fn figure(drawn: &Drawn<'_>) -> String {
    let title = escape(drawn.plot.figure.title());
    let shape = drawn.svg.find("viewBox").map_or(drawn.svg.as_str(), |at| &drawn.svg[at..]);
    let caption = escape(drawn.plot.caption);
    format!(
        "<figure>\n<svg role=\"img\" aria-label=\"{title}\" {}\n<figcaption>{caption}</figcaption>\n</figure>\n",
        shape.trim_end()
    )
}

fn what_it_means() -> String {
    let mut html = String::from("<h2>What the numbers mean</h2>\n<dl class=\"definitions\">\n");
    for Definition { name, unit, text } in definitions::ALL {
        let unit = if unit.is_empty() { String::new() } else { format!(" <span>{}</span>", escape(unit)) };
        push(&mut html, format_args!("<div><dt>{}{unit}</dt><dd>{}</dd></div>\n", escape(name), escape(text)));
    }
    html + "</dl>\n"
}

fn notes(notes: &[String]) -> String {
    if notes.is_empty() {
        return String::new();
    }
    let notes: String = notes.iter().map(|note| format!("<li>{}</li>\n", escape(note))).collect();
    format!("<h2>Notes</h2>\n<ul>\n{notes}</ul>\n")
}

fn source((title, yaml): (&str, &str)) -> String {
    format!("<details>\n<summary>{title}</summary>\n<pre>{}</pre>\n</details>\n", escape(yaml))
}

fn push(html: &mut String, text: std::fmt::Arguments<'_>) {
    html.write_fmt(text).expect("a string takes any text");
}
