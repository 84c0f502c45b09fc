//! The instance type label of a VM; mirrors `nodemanager.go:DiscoverNode` and `types.go:GuestOSLookup`.

/// The instance type of a VM with this many virtual CPUs, this much memory in MiB and this `guestId`.
///
/// The memory is cut to whole GiB. The table is frozen on purpose: a guest that has no row stays `unknown`, because
/// the label is used in selectors.
pub fn build_instance_type(cpus: i32, memory_mib: i32, guest_id: &str) -> String {
    let gib = memory_mib / 1024;
    let guest = find_guest_os(guest_id).unwrap_or("unknown");
    format!("vsphere-vm.cpu-{cpus}.mem-{gib}gb.os-{guest}")
}

/// The short name of a `guestId`, compared with case.
fn find_guest_os(guest_id: &str) -> Option<&'static str> {
    GUEST_OS.iter().find(|(id, _)| *id == guest_id).map(|(_, name)| *name)
}

/// `guestId` and short name. `centos64Guest` and `sles64Guest` keep their 64 and `windows9…` is `win10`, as in Go.
const GUEST_OS: [(&str, &str); 151] = [
    ("asianux3_64Guest", "asianux3"),
    ("asianux3Guest", "asianux3"),
    ("asianux4_64Guest", "asianux4"),
    ("asianux4Guest", "asianux4"),
    ("asianux5_64Guest", "asianux5"),
    ("asianux7_64Guest", "asianux7"),
    ("centos6_64Guest", "centos6"),
    ("centos64Guest", "centos64"),
    ("centos6Guest", "centos6"),
    ("centos7_64Guest", "centos7"),
    ("centos7Guest", "centos7"),
    ("centosGuest", "centos"),
    ("coreos64Guest", "coreos"),
    ("darwin10_64Guest", "darwin"),
    ("darwin10Guest", "darwin"),
    ("darwin11_64Guest", "darwin"),
    ("darwin11Guest", "darwin"),
    ("darwin12_64Guest", "darwin"),
    ("darwin13_64Guest", "darwin"),
    ("darwin14_64Guest", "darwin"),
    ("darwin15_64Guest", "darwin"),
    ("darwin16_64Guest", "darwin"),
    ("darwin64Guest", "darwin"),
    ("darwinGuest", "darwin"),
    ("debian10_64Guest", "debian10"),
    ("debian10Guest", "debian10"),
    ("debian4_64Guest", "debian4"),
    ("debian4Guest", "debian4"),
    ("debian5_64Guest", "debian5"),
    ("debian5Guest", "debian5"),
    ("debian6_64Guest", "debian6"),
    ("debian6Guest", "debian6"),
    ("debian7_64Guest", "debian7"),
    ("debian7Guest", "debian7"),
    ("debian8_64Guest", "debian8"),
    ("debian8Guest", "debian8"),
    ("debian9_64Guest", "debian9"),
    ("debian9Guest", "debian9"),
    ("dosGuest", "dos"),
    ("eComStation2Guest", "eComStation2"),
    ("eComStationGuest", "eComStation"),
    ("fedora64Guest", "fedora"),
    ("fedoraGuest", "fedora"),
    ("freebsd64Guest", "freebsd"),
    ("freebsdGuest", "freebsd"),
    ("genericLinuxGuest", "linux"),
    ("mandrakeGuest", "mandrake"),
    ("mandriva64Guest", "mandriva"),
    ("mandrivaGuest", "mandriva"),
    ("netware4Guest", "netware4"),
    ("netware5Guest", "netware5"),
    ("netware6Guest", "netware6"),
    ("nld9Guest", "nld9"),
    ("oesGuest", "oes"),
    ("openServer5Guest", "openServer5"),
    ("openServer6Guest", "openServer6"),
    ("opensuse64Guest", "opensuse"),
    ("opensuseGuest", "opensuse"),
    ("oracleLinux6_64Guest", "oracleLinux6"),
    ("oracleLinux64Guest", "oracleLinux"),
    ("oracleLinux6Guest", "oracleLinux6"),
    ("oracleLinux7_64Guest", "oracleLinux7"),
    ("oracleLinux7Guest", "oracleLinux7"),
    ("oracleLinuxGuest", "oracleLinux"),
    ("os2Guest", "os2"),
    ("other24xLinux64Guest", "linux"),
    ("other24xLinuxGuest", "linux"),
    ("other26xLinux64Guest", "linux"),
    ("other26xLinuxGuest", "linux"),
    ("other3xLinux64Guest", "linux"),
    ("other3xLinuxGuest", "linux"),
    ("otherGuest", "other"),
    ("otherGuest64", "other"),
    ("otherLinux64Guest", "linux"),
    ("otherLinuxGuest", "linux"),
    ("redhatGuest", "rhel"),
    ("rhel2Guest", "rhel2"),
    ("rhel3_64Guest", "rhel3"),
    ("rhel3Guest", "rhel3"),
    ("rhel4_64Guest", "rhel4"),
    ("rhel4Guest", "rhel4"),
    ("rhel5_64Guest", "rhel5"),
    ("rhel5Guest", "rhel5"),
    ("rhel6_64Guest", "rhel6"),
    ("rhel6Guest", "rhel6"),
    ("rhel7_64Guest", "rhel7"),
    ("rhel7Guest", "rhel7"),
    ("rhel8_64Guest", "rhel8"),
    ("rhel9_64Guest", "rhel9"),
    ("rhel10_64Guest", "rhel10"),
    ("sjdsGuest", "sjds"),
    ("sles10_64Guest", "sles10"),
    ("sles10Guest", "sles10"),
    ("sles11_64Guest", "sles11"),
    ("sles11Guest", "sles11"),
    ("sles12_64Guest", "sles12"),
    ("sles12Guest", "sles12"),
    ("sles64Guest", "sles64"),
    ("slesGuest", "sles"),
    ("solaris10_64Guest", "solaris10"),
    ("solaris10Guest", "solaris10"),
    ("solaris11_64Guest", "solaris11"),
    ("solaris6Guest", "solaris6"),
    ("solaris7Guest", "solaris7"),
    ("solaris8Guest", "solaris8"),
    ("solaris9Guest", "solaris9"),
    ("suse64Guest", "suse"),
    ("suseGuest", "suse"),
    ("turboLinux64Guest", "turbolinux"),
    ("turboLinuxGuest", "turbolinux"),
    ("ubuntu64Guest", "ubuntu"),
    ("ubuntuGuest", "ubuntu"),
    ("unixWare7Guest", "unixware7"),
    ("vmkernel5Guest", "vmkernel5"),
    ("vmkernel65Guest", "vmkernel65"),
    ("vmkernel6Guest", "vmkernel6"),
    ("vmkernelGuest", "vmkernel"),
    ("vmwarePhoton64Guest", "photon"),
    ("win2000AdvServGuest", "win2000advserv"),
    ("win2000ProGuest", "win2000pro"),
    ("win2000ServGuest", "win2000serv"),
    ("win31Guest", "win31"),
    ("win95Guest", "win95"),
    ("win98Guest", "win98"),
    ("windows7_64Guest", "win7"),
    ("windows7Guest", "win7"),
    ("windows7Server64Guest", "win7server"),
    ("windows8_64Guest", "win8"),
    ("windows8Guest", "win8"),
    ("windows8Server64Guest", "win8server"),
    ("windows9_64Guest", "win10"),
    ("windows9Guest", "win10"),
    ("windows9Server64Guest", "win10server"),
    ("windowsHyperVGuest", "windowshyperv"),
    ("winLonghorn64Guest", "winlonghorn"),
    ("winLonghornGuest", "winlonghorn"),
    ("winMeGuest", "winme"),
    ("winNetBusinessGuest", "winnetbusiness"),
    ("winNetDatacenter64Guest", "winnetdatacenter"),
    ("winNetDatacenterGuest", "winnetdatacenter"),
    ("winNetEnterprise64Guest", "winnetenterprise"),
    ("winNetEnterpriseGuest", "winnetenterprise"),
    ("winNetStandard64Guest", "winnetstandard"),
    ("winNetStandardGuest", "winnetstandard"),
    ("winNetWebGuest", "winnetweb"),
    ("winNTGuest", "winnt"),
    ("winVista64Guest", "winvista"),
    ("winVistaGuest", "winvista"),
    ("winXPHomeGuest", "winxphome"),
    ("winXPPro64Guest", "winxppro"),
    ("winXPProGuest", "winxppro"),
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

    /// The whole table of the Go program, and the guests of today's vSphere that it does not know: selectors use the
    /// label, so these stay `unknown`.
    // vectors: T2
    #[test]
    fn t2_every_guest_has_the_shorthand_of_the_go_program() {
        let (mut known, mut unknown) = (HashSet::new(), 0);
        for line in include_str!("../../../tests/golden/vectors/guest_os.txt").lines() {
            let (guest_id, want) = line.split_once(' ').unwrap();
            let got = build_instance_type(4, 8192, guest_id);
            assert_eq!(got, format!("vsphere-vm.cpu-4.mem-8gb.os-{want}"), "{guest_id}");
            if want == "unknown" { unknown += 1 } else { assert!(known.insert(guest_id)) }
        }
        assert_eq!((known.len(), GUEST_OS.len()), (151, 151));
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
