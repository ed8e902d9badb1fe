//! What is the journal's own, the job does not see.

use crate::site::*;
use std::fs;
use std::os::unix::fs::MetadataExt;
use wire::What;

#[test]
fn further_names_of_the_journal_are_not_counted() {
    let site = Site::new();
    fs::write(site.path("file"), "x").expect("writes");
    fs::hard_link(site.path("file"), site.path("second")).expect("links");
    site.mark();
    let handle = site.handle("file", O_RDONLY).expect("opens");
    site.remove("file", false).expect("removes");
    // One of the job's, and one of the journal's.
    let there = fs::metadata(site.path("second")).expect("is there").nlink();
    assert_eq!(there, 2);
    assert_eq!(site.attributes("second").expect("is there").links, 1);
    assert_eq!(site.list(""), [("second".to_owned(), 1)]);
    assert_eq!(
        site.open("second", O_RDONLY)
            .expect("opens")
            .attributes
            .links,
        1
    );
    site.remove("second", false).expect("removes");
    let place = wire::Place {
        at: handle,
        name: b"",
    };
    let asked = wire::Attribute {
        place,
        follow: true,
    };
    match site.ask(wire::Request::Attribute(asked), &[]) {
        Ok(wire::Reply::Attributes(attributes)) => assert_eq!(attributes.links, 0),
        other => panic!("{other:?}"),
    }
    let name_of = wire::Request::NameOf(wire::NameOf { handle });
    assert_eq!(site.ask(name_of, &[]), Err(ENOENT));
    // Attributes that come back with a change, too.
    site.write("one", O_RDWR | O_CREAT, 0, b"x")
        .expect("writes");
    site.link("one", "two").expect("links");
    site.mark();
    site.remove("two", false).expect("removes");
    site.change("one", What::Mode(0o600)).expect("changes");
    assert_eq!(site.attributes("one").expect("is there").links, 1);
}

#[test]
fn side_folders_are_not_there() {
    let site = Site::new();
    let side = site.path(".wayfarer-kept-0011223344556677");
    fs::create_dir(&side).expect("makes it");
    fs::write(side.join("object-1"), "old").expect("writes");
    fs::write(site.path("file"), "x").expect("writes");
    fs::create_dir(site.path("folder")).expect("makes it");
    std::os::unix::fs::symlink(side.join("object-1"), site.path("leads-there")).expect("links");
    let names: Vec<_> = site.list("").into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["file", "folder", "leads-there"]);
    let own = ".wayfarer-kept-0011223344556677";
    for name in [
        own.to_owned(),
        format!("{own}/object-1"),
        format!("folder/../{own}/object-1"),
    ] {
        assert_eq!(site.attributes(&name).err(), Some(ENOENT), "{name}");
        assert_eq!(site.open(&name, O_RDONLY).err(), Some(ENOENT), "{name}");
        assert_eq!(
            site.open(&name, O_RDWR | O_CREAT).err(),
            Some(ENOENT),
            "{name}"
        );
        assert_eq!(site.remove(&name, false), Err(ENOENT), "{name}");
    }
    assert_eq!(site.open("leads-there", O_RDONLY).err(), Some(ENOENT));
    assert_eq!(site.make_folder(".wayfarer-kept-mine"), Err(ENOENT));
    assert_eq!(site.rename("file", &format!("{own}/file"), 0), Err(ENOENT));
}

#[test]
fn the_journals_are_not_there() {
    let site = Site::new();
    for name in [
        "../journals",
        "../journals/.",
        "../files/../journals/07070707070707070707070707070707/manifest",
    ] {
        assert_eq!(site.attributes(name).err(), Some(ENOENT), "{name}");
        assert_eq!(site.open(name, O_RDONLY).err(), Some(ENOENT), "{name}");
    }
    let names: Vec<_> = site.list("..").into_iter().map(|(name, _)| name).collect();
    assert_eq!(names, ["files"]);
}
