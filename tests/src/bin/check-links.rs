//! Checks that all links and anchors in a folder of HTML files have a target in it.
//!
//! `check-links FOLDER`

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Component, Path, PathBuf};
use std::process::ExitCode;

fn main() -> ExitCode {
    let Some(folder) = std::env::args_os().nth(1).map(PathBuf::from) else {
        eprintln!("usage: check-links FOLDER");
        return ExitCode::from(2);
    };
    let mut pages = BTreeMap::new();
    if let Err(error) = read(&folder, &mut pages) {
        eprintln!("{}: {error}", folder.display());
        return ExitCode::from(2);
    }
    let anchors: BTreeMap<&PathBuf, BTreeSet<&str>> =
        pages.iter().map(|(path, text)| (path, attributes(text, "id").collect())).collect();
    let (mut links, mut broken) = (0, 0);
    for (page, text) in &pages {
        // Repetitions of other pages, and the page for wrong addresses, whose base is the server.
        if ["print.html", "toc.html", "404.html"].iter().any(|name| page.ends_with(name)) {
            continue;
        }
        for link in attributes(text, "href").chain(attributes(text, "src")) {
            if link.contains("://") || link.starts_with("mailto:") || link.starts_with("data:") {
                continue;
            }
            links += 1;
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let target = if file.is_empty() { page.clone() } else { joined(page, file) };
            let found = match anchors.get(&target) {
                Some(of_page) => anchor.is_empty() || of_page.contains(anchor),
                None => target.is_file() && anchor.is_empty(),
            };
            if !found {
                broken += 1;
                eprintln!("{}: the link {link} has no target", page.display());
            }
        }
    }
    println!("{} pages, {links} links, {broken} broken", pages.len());
    if broken == 0 && links > 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// `link` relative to the folder of `page`, without `..`.
fn joined(page: &Path, link: &str) -> PathBuf {
    let mut path = PathBuf::new();
    for part in page.parent().unwrap_or(Path::new("")).join(link).components() {
        match part {
            Component::ParentDir => drop(path.pop()),
            Component::CurDir => {}
            other => path.push(other),
        }
    }
    path
}

/// All HTML files below `folder`.
fn read(folder: &Path, pages: &mut BTreeMap<PathBuf, String>) -> std::io::Result<()> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            read(&path, pages)?;
        } else if path.extension().is_some_and(|e| e == "html") {
            pages.insert(path.clone(), std::fs::read_to_string(&path)?);
        }
    }
    Ok(())
}

/// Values of the attribute `name` in the tags of `html`.
fn attributes<'a>(html: &'a str, name: &'a str) -> impl Iterator<Item = &'a str> {
    let tags = html.split('<').skip(1).filter_map(|rest| rest.split_once('>').map(|(tag, _)| tag));
    tags.filter(|tag| !tag.starts_with(['/', '!'])).filter_map(move |tag| {
        let rest = tag.split_once(&format!(" {name}=\""))?.1;
        Some(rest.split_once('"')?.0)
    })
}
