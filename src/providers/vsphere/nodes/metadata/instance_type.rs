//! The instance type label of a VM; mirrors `nodemanager.go:DiscoverNode` and `types.go:GuestOSLookup`.

/// Returns the instance type of a VM with these virtual CPUs, this memory in MiB and this `guestId`.
///
/// Memory is truncated to GiB. The names in `GUEST_OS` must never change, because selectors use the label.
pub fn build_instance_type(cpus: i32, memory_mib: i32, guest_id: &str) -> String {
    let gib = memory_mib / 1024;
    let guest = find_guest_os(guest_id).unwrap_or("unknown");
    format!("vsphere-vm.cpu-{cpus}.mem-{gib}gb.os-{guest}")
}

/// Returns the short name of a `guestId`, case-sensitively.
fn find_guest_os(guest_id: &str) -> Option<&'static str> {
    GUEST_OS.iter().find(|(_, ids)| ids.contains(&guest_id)).map(|(name, _)| *name)
}

/// Short names and their `guestId`s. As in Go, `centos64Guest` and `sles64Guest` keep their 64, and `windows9…` is
/// `win10`.
const GUEST_OS: &[(&str, &[&str])] = &[
    ("asianux3", &["asianux3_64Guest", "asianux3Guest"]),
    ("asianux4", &["asianux4_64Guest", "asianux4Guest"]),
    ("asianux5", &["asianux5_64Guest"]),
    ("asianux7", &["asianux7_64Guest"]),
    ("centos6", &["centos6_64Guest", "centos6Guest"]),
    ("centos64", &["centos64Guest"]),
    ("centos7", &["centos7_64Guest", "centos7Guest"]),
    ("centos", &["centosGuest"]),
    ("coreos", &["coreos64Guest"]),
    (
        "darwin",
        &[
            "darwin10_64Guest",
            "darwin10Guest",
            "darwin11_64Guest",
            "darwin11Guest",
            "darwin12_64Guest",
            "darwin13_64Guest",
            "darwin14_64Guest",
            "darwin15_64Guest",
            "darwin16_64Guest",
            "darwin64Guest",
            "darwinGuest",
        ],
    ),
    ("debian10", &["debian10_64Guest", "debian10Guest"]),
    ("debian4", &["debian4_64Guest", "debian4Guest"]),
    ("debian5", &["debian5_64Guest", "debian5Guest"]),
    ("debian6", &["debian6_64Guest", "debian6Guest"]),
    ("debian7", &["debian7_64Guest", "debian7Guest"]),
    ("debian8", &["debian8_64Guest", "debian8Guest"]),
    ("debian9", &["debian9_64Guest", "debian9Guest"]),
    ("dos", &["dosGuest"]),
    ("eComStation2", &["eComStation2Guest"]),
    ("eComStation", &["eComStationGuest"]),
    ("fedora", &["fedora64Guest", "fedoraGuest"]),
    ("freebsd", &["freebsd64Guest", "freebsdGuest"]),
    (
        "linux",
        &[
            "genericLinuxGuest",
            "other24xLinux64Guest",
            "other24xLinuxGuest",
            "other26xLinux64Guest",
            "other26xLinuxGuest",
            "other3xLinux64Guest",
            "other3xLinuxGuest",
            "otherLinux64Guest",
            "otherLinuxGuest",
        ],
    ),
    ("mandrake", &["mandrakeGuest"]),
    ("mandriva", &["mandriva64Guest", "mandrivaGuest"]),
    ("netware4", &["netware4Guest"]),
    ("netware5", &["netware5Guest"]),
    ("netware6", &["netware6Guest"]),
    ("nld9", &["nld9Guest"]),
    ("oes", &["oesGuest"]),
    ("openServer5", &["openServer5Guest"]),
    ("openServer6", &["openServer6Guest"]),
    ("opensuse", &["opensuse64Guest", "opensuseGuest"]),
    ("oracleLinux6", &["oracleLinux6_64Guest", "oracleLinux6Guest"]),
    ("oracleLinux", &["oracleLinux64Guest", "oracleLinuxGuest"]),
    ("oracleLinux7", &["oracleLinux7_64Guest", "oracleLinux7Guest"]),
    ("os2", &["os2Guest"]),
    ("other", &["otherGuest", "otherGuest64"]),
    ("rhel", &["redhatGuest"]),
    ("rhel2", &["rhel2Guest"]),
    ("rhel3", &["rhel3_64Guest", "rhel3Guest"]),
    ("rhel4", &["rhel4_64Guest", "rhel4Guest"]),
    ("rhel5", &["rhel5_64Guest", "rhel5Guest"]),
    ("rhel6", &["rhel6_64Guest", "rhel6Guest"]),
    ("rhel7", &["rhel7_64Guest", "rhel7Guest"]),
    ("rhel8", &["rhel8_64Guest"]),
    ("rhel9", &["rhel9_64Guest"]),
    ("rhel10", &["rhel10_64Guest"]),
    ("sjds", &["sjdsGuest"]),
    ("sles10", &["sles10_64Guest", "sles10Guest"]),
    ("sles11", &["sles11_64Guest", "sles11Guest"]),
    ("sles12", &["sles12_64Guest", "sles12Guest"]),
    ("sles64", &["sles64Guest"]),
    ("sles", &["slesGuest"]),
    ("solaris10", &["solaris10_64Guest", "solaris10Guest"]),
    ("solaris11", &["solaris11_64Guest"]),
    ("solaris6", &["solaris6Guest"]),
    ("solaris7", &["solaris7Guest"]),
    ("solaris8", &["solaris8Guest"]),
    ("solaris9", &["solaris9Guest"]),
    ("suse", &["suse64Guest", "suseGuest"]),
    ("turbolinux", &["turboLinux64Guest", "turboLinuxGuest"]),
    ("ubuntu", &["ubuntu64Guest", "ubuntuGuest"]),
    ("unixware7", &["unixWare7Guest"]),
    ("vmkernel5", &["vmkernel5Guest"]),
    ("vmkernel65", &["vmkernel65Guest"]),
    ("vmkernel6", &["vmkernel6Guest"]),
    ("vmkernel", &["vmkernelGuest"]),
    ("photon", &["vmwarePhoton64Guest"]),
    ("win2000advserv", &["win2000AdvServGuest"]),
    ("win2000pro", &["win2000ProGuest"]),
    ("win2000serv", &["win2000ServGuest"]),
    ("win31", &["win31Guest"]),
    ("win95", &["win95Guest"]),
    ("win98", &["win98Guest"]),
    ("win7", &["windows7_64Guest", "windows7Guest"]),
    ("win7server", &["windows7Server64Guest"]),
    ("win8", &["windows8_64Guest", "windows8Guest"]),
    ("win8server", &["windows8Server64Guest"]),
    ("win10", &["windows9_64Guest", "windows9Guest"]),
    ("win10server", &["windows9Server64Guest"]),
    ("windowshyperv", &["windowsHyperVGuest"]),
    ("winlonghorn", &["winLonghorn64Guest", "winLonghornGuest"]),
    ("winme", &["winMeGuest"]),
    ("winnetbusiness", &["winNetBusinessGuest"]),
    ("winnetdatacenter", &["winNetDatacenter64Guest", "winNetDatacenterGuest"]),
    ("winnetenterprise", &["winNetEnterprise64Guest", "winNetEnterpriseGuest"]),
    ("winnetstandard", &["winNetStandard64Guest", "winNetStandardGuest"]),
    ("winnetweb", &["winNetWebGuest"]),
    ("winnt", &["winNTGuest"]),
    ("winvista", &["winVista64Guest", "winVistaGuest"]),
    ("winxphome", &["winXPHomeGuest"]),
    ("winxppro", &["winXPPro64Guest", "winXPProGuest"]),
];

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    // vectors: T1
    #[test]
    fn t1_memory_is_cut_to_whole_gib() {
        let vectors = [(512, 0), (1023, 0), (1536, 1), (4095, 3), (4096, 4), (1_048_576, 1024)];
        for (mib, gib) in vectors {
            let want = format!("vsphere-vm.cpu-2.mem-{gib}gb.os-ubuntu");
            assert_eq!(build_instance_type(2, mib, "ubuntu64Guest"), want, "{mib}");
        }
    }

    /// Checks the whole table of the Go program, and newer guests of vSphere that it does not know. These stay
    /// `unknown`, because node selectors use the label.
    // vectors: T2
    #[test]
    fn t2_every_guest_has_the_shorthand_of_the_go_program() {
        let (mut known, mut unknown) = (HashSet::new(), 0);
        for line in include_str!("../../../../../tests/golden/vectors/guest_os.txt").lines() {
            let (guest_id, want) = line.split_once(' ').unwrap();
            let got = build_instance_type(4, 8192, guest_id);
            assert_eq!(got, format!("vsphere-vm.cpu-4.mem-8gb.os-{want}"), "{guest_id}");
            if want == "unknown" { unknown += 1 } else { assert!(known.insert(guest_id)) }
        }
        assert_eq!((known.len(), GUEST_OS.iter().map(|(_, ids)| ids.len()).sum()), (151, 151));
        assert_eq!(unknown, 59);
    }

    // vectors: T3
    #[test]
    fn t3_the_guest_is_looked_up_with_case_and_may_be_unknown() {
        for guest_id in ["UBUNTU64GUEST", "ubuntu64guest", "", " ubuntu64Guest", "of-the-future"] {
            assert_eq!(build_instance_type(4, 8192, guest_id), "vsphere-vm.cpu-4.mem-8gb.os-unknown", "{guest_id:?}");
        }
    }
}
