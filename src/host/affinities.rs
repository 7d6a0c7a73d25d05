//! What threads were pinned to before the kernel forgot it.

use super::syscall;
use crate::topology::CpuSet;
use std::fs;
use std::path::Path;

/// Threads and their affinities.
#[derive(Debug, Default)]
pub struct Affinities(Vec<(i32, CpuSet)>);

impl Affinities {
    /// Those of all threads in the groups below one.
    pub fn below(group: &Path) -> Affinities {
        let mut threads = Affinities::default();
        threads.add_below(group);
        threads
    }

    fn add_below(&mut self, group: &Path) {
        let inner = fs::read_dir(group).into_iter().flatten().flatten();
        for entry in inner.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())) {
            let threads = fs::read_to_string(entry.path().join("cgroup.threads")).unwrap_or_default();
            let ids = threads.lines().filter_map(|thread| thread.parse().ok());
            // A thread that is gone by now needs nothing.
            self.0.extend(ids.filter_map(|id| Some((id, syscall::affinity_of(id).ok()?))));
            self.add_below(&entry.path());
        }
    }

    /// Gives back to each of them what it had, where the kernel has widened it.
    /// What a thread has chosen for itself in the meantime is no superset.
    pub fn put_back(&self) {
        for (id, before) in &self.0 {
            let widened = syscall::affinity_of(*id).is_ok_and(|now| now != *before && before.is_subset(&now));
            if widened && let Err(error) = syscall::set_affinity_of(*id, before) {
                tracing::warn!("thread {id} was pinned to {before}, which could not be put back: {error}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc;

    /// A thread that does what it is told to its affinity, and says who it is.
    fn thread(start: CpuSet) -> (i32, mpsc::Sender<()>) {
        let (tell, heard) = mpsc::channel();
        let (end, ended) = mpsc::channel();
        std::thread::spawn(move || {
            syscall::set_affinity(&start).unwrap();
            tell.send(nix::unistd::gettid().as_raw()).unwrap();
            let _ = ended.recv();
        });
        (heard.recv().unwrap(), end)
    }

    #[test]
    fn who_was_pinned_is_pinned_again_and_who_has_chosen_otherwise_is_left_alone() {
        let all = syscall::affinity().unwrap();
        if all.len() < 2 {
            eprintln!("SKIPPED, NOT TESTED: there is one CPU only");
            return;
        }
        let (first, last) = (CpuSet::one(all.first().unwrap()), CpuSet::one(all.last().unwrap()));
        let folder = tempfile::tempdir().unwrap();
        let group = folder.path().join("a/b");
        fs::create_dir_all(&group).unwrap();
        let (widened, _one) = thread(first.clone());
        let (moved, _two) = thread(first.clone());
        fs::write(group.join("cgroup.threads"), format!("{widened}\n{moved}\n999999999\n")).unwrap();
        let pinned = Affinities::below(folder.path());
        syscall::set_affinity_of(widened, &all).unwrap();
        syscall::set_affinity_of(moved, &last).unwrap();
        pinned.put_back();
        assert_eq!((syscall::affinity_of(widened).unwrap(), syscall::affinity_of(moved).unwrap()), (first, last));
    }
}
