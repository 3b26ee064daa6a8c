//! The scanner against texts that are written here; whole files are in `tests/cases.rs`.

use super::*;

/// A block whose body is harmless base64.
fn block(label: &str) -> String {
    format!("-----BEGIN {label}-----\nMAMCAQE=\n-----END {label}-----\n")
}

fn problem(text: impl AsRef<[u8]>) -> (Problem, Option<usize>) {
    let error = parse(text.as_ref()).expect_err("refused");
    (error.problem().clone(), error.line())
}

fn labels(text: &str) -> Vec<Label> {
    parse(text.as_bytes()).expect("accepted").iter().map(Block::label).collect()
}

#[test]
fn blocks_come_in_order_with_their_lines() {
    let text = format!("\u{feff}text\r\n{}\rmore\n\n{}", block("CERTIFICATE"), block("RSA PRIVATE KEY"));
    let blocks = parse(text.as_bytes()).unwrap();
    let facts: Vec<_> = blocks.iter().map(|block| (block.label(), block.line(), block.der())).collect();
    let der: &[u8] = &[0x30, 3, 2, 1, 1];
    assert_eq!(facts, [(Label::Certificate, 2, der), (Label::Pkcs1Key, 8, der)]);
}

#[test]
fn harmless_sloppiness_is_accepted() {
    for text in [
        "-----BEGIN CERTIFICATE-----  \nMAMCAQE=\n-----END CERTIFICATE-----\t \n",
        "-----BEGIN CERTIFICATE-----\n\n   MA MC\u{b}\n\t A Q E = \n-----END CERTIFICATE-----",
        "-----BEGIN CERTIFICATE-----\rMAMCAQE=\r-----END CERTIFICATE-----\r",
        // The unused bits of the last symbol are set.
        "-----BEGIN CERTIFICATE-----\nMAMCAQF=\n-----END CERTIFICATE-----",
        // C programs end their strings so.
        "-----BEGIN CERTIFICATE-----\nMAMCAQE=\n-----END CERTIFICATE-----\n\0",
        "Bag Attributes\n  friendlyName: -- a --\n---\n-----BEGIN CERTIFICATE-----\nMAMCAQE=\n-----END CERTIFICATE-----\n---\n",
        "BEGIN with this:\nTHE END\n--- begin of the chain ---\n-----BEGIN CERTIFICATE-----\nMAMCAQE=\n-----END CERTIFICATE-----",
    ] {
        let blocks = parse(text.as_bytes()).unwrap_or_else(|error| panic!("{text:?}: {error}"));
        assert_eq!(blocks.len(), 1, "{text:?}");
        assert_eq!(blocks[0].der(), [0x30, 3, 2, 1, 1], "{text:?}");
    }
}

#[test]
fn a_marker_that_is_not_alone_on_its_line_is_refused() {
    let after = block("CERTIFICATE");
    for (line, expected) in [
        (" -----BEGIN CERTIFICATE-----", Problem::NotAtLineStart(Marker::Begin)),
        ("# -----BEGIN CERTIFICATE-----", Problem::NotAtLineStart(Marker::Begin)),
        ("------BEGIN CERTIFICATE-----", Problem::NotAtLineStart(Marker::Begin)),
        ("\u{feff}-----BEGIN CERTIFICATE-----", Problem::ByteOrderMark(Marker::Begin)),
        ("\u{feff}-----END CERTIFICATE-----", Problem::ByteOrderMark(Marker::End)),
        ("-----END CERTIFICATE----------BEGIN CERTIFICATE-----", Problem::Glued),
        ("-----BEGIN CERTIFICATE-----MAMC-----END CERTIFICATE-----", Problem::LineBreaksMissing),
        (r"-----BEGIN CERTIFICATE-----\nMAMC\n", Problem::LineBreaksEscaped),
        ("-----BEGIN CERTIFICATE----- MAMC", Problem::TextAfterMarker(Marker::Begin)),
        ("-----BEGIN A-----BEGIN B-----", Problem::TextAfterMarker(Marker::Begin)),
        ("-----END CERTIFICATE-----MAMC", Problem::TextAfterMarker(Marker::End)),
    ] {
        assert_eq!(problem(format!("{after}{line}\n{after}")), (expected, Some(4)), "{line}");
    }
}

#[test]
fn what_was_meant_as_a_marker_is_not_taken_for_text() {
    for line in [
        "----BEGIN CERTIFICATE-----",
        "-----BEGIN CERTIFICATE----",
        "-----BEGIN CERTIFICATE------",
        "-----BEGIN  CERTIFICATE-----",
        "-----BEGIN CERTIFICATE -----",
        "----- BEGIN CERTIFICATE -----",
        "-----BEGIN\tCERTIFICATE-----",
        "-----BEGIN-----",
        "-----BEGIN -----",
        "-----begin certificate-----",
        "  ----BEGIN CERTIFICATE----",
        "\u{2014}\u{2013}BEGIN CERTIFICATE-----",
        "\u{2014}BEGIN PRIVATE KEY\u{2014}",
        "BEGIN CERTIFICATE-----",
        "-----BEGIN CERTIFICATE",
        "---BEGIN ANYTHING---",
        "-----BEGIN CERT\u{e9}IFICATE-----",
    ] {
        let text = format!("{}{line}\nMAMC\n", block("CERTIFICATE"));
        assert_eq!(problem(text), (Problem::MalformedMarker(Marker::Begin), Some(4)), "{line}");
        let text = format!("{}\n", line.replace("BEGIN", "END").replace("begin", "end"));
        assert_eq!(problem(text), (Problem::MalformedMarker(Marker::End), Some(1)), "{line}");
    }
}

/// Found by fuzzing: a marker that had lost everything behind its first word was taken for text, and where both
/// markers of a block had, the block was lost without an error.
#[test]
fn a_marker_of_one_word_is_not_taken_for_text() {
    for (word, marker) in [("BEGIN", Marker::Begin), ("END", Marker::End)] {
        for line in [format!("-----{word}"), format!("-----{word} "), format!("-----{word}\t\r")] {
            let text = format!("{}{line}\nMAMC\n", block("CERTIFICATE"));
            assert_eq!(problem(text), (Problem::MalformedMarker(marker), Some(4)), "{line:?}");
        }
        let text = format!("{}words-----{word} \nMAMC\n", block("CERTIFICATE"));
        assert_eq!(problem(text), (Problem::NotAtLineStart(marker), Some(4)));
    }
    // Cut there, it is a file that is still being written.
    assert_eq!(problem(format!("{}-----BEGIN", block("CERTIFICATE"))), (Problem::MarkerCut, Some(4)));
}

#[test]
fn markers_must_pair() {
    let begin = "-----BEGIN CERTIFICATE-----\n";
    let end = "-----END CERTIFICATE-----\n";
    let good = block("CERTIFICATE");
    assert_eq!(problem(end), (Problem::EndWithoutBegin, Some(1)));
    assert_eq!(problem(format!("{good}{end}")), (Problem::EndWithoutBegin, Some(4)));
    let missing = Problem::EndMissing { block: 2, label: Label::Certificate };
    assert_eq!(problem(format!("{good}{begin}MAMC\n")), (missing, Some(4)));
    let inside = Problem::BeginInside { block: 1, begun: 1 };
    assert_eq!(problem(format!("{begin}MAMC\n{good}")), (inside, Some(3)));
    let differ = Problem::LabelsDiffer { block: 1, begin: Label::Certificate, end: Label::Pkcs8Key };
    assert_eq!(problem(format!("{begin}MAMC\n-----END PRIVATE KEY-----\n")), (differ, Some(3)));
    // Unknown labels are told apart by their text.
    let differ = Problem::LabelsDiffer { block: 1, begin: Label::Other, end: Label::Other };
    assert_eq!(problem("-----BEGIN A-----\n-----END B-----\n"), (differ, Some(2)));
}

#[test]
fn base64_is_strict_about_what_could_be_a_loss() {
    let refused = |body: &str, line: usize| {
        let text = format!("-----BEGIN CERTIFICATE-----\n{body}\n-----END CERTIFICATE-----\n");
        let expected = Problem::Base64 { block: 1, label: Label::Certificate };
        assert_eq!(problem(text), (expected, Some(line)), "{body:?}");
    };
    refused("MAMCAQE", 2);
    refused("MAMC\nAQE", 3);
    refused("MAMC\r\nA", 3);
    refused("MAMCAQE==", 2);
    refused("MAMC\n=AQE", 3);
    refused("MAMCAQE=\nMAMC", 3);
    refused("MAMC====", 2);
    refused("MA-_", 2);
    refused("MAMC\n\nM\u{e9}M=", 4);
    refused("MAMC\n# comment", 3);
    refused("MAMC\nName: value\n\nMAMC", 3);
    let empty = Problem::EmptyBlock { block: 1, label: Label::Certificate };
    assert_eq!(problem("-----BEGIN CERTIFICATE-----\n \n-----END CERTIFICATE-----\n"), (empty, Some(1)));
}

#[test]
fn labels_that_hold_what_was_wanted_are_never_skipped() {
    let encrypted = |encryption| (Problem::Encrypted(encryption), Some(1));
    assert_eq!(problem(block("ENCRYPTED PRIVATE KEY")), encrypted(Encryption::Pkcs8));
    for header in ["Proc-Type: 4,ENCRYPTED", "DEK-Info: AES-128-CBC,00"] {
        let text =
            format!("-----BEGIN EC PRIVATE KEY-----\n{header}\n\nMAMC\n-----END EC PRIVATE KEY-----\n");
        assert_eq!(problem(text), encrypted(Encryption::DekInfo));
    }
    let shown = parse(block("ENCRYPTED PRIVATE KEY").as_bytes()).unwrap_err().to_string();
    assert!(shown.contains("encrypted (PKCS#8)"), "{shown}");
    assert_eq!(problem(block("OPENSSH PRIVATE KEY")), (Problem::Openssh, Some(1)));
    assert_eq!(problem(block("PKCS7")), (Problem::Pkcs7, Some(1)));
    assert_eq!(problem(block("CMS")), (Problem::Pkcs7, Some(1)));
    for label in
        ["TRUSTED CERTIFICATE", "X509 CERTIFICATE", "MY CERTIFICATE", "DSA PRIVATE KEY", "ANY PRIVATE KEY"]
    {
        assert_eq!(
            problem(block(label)),
            (Problem::UnreadLabel(Label::from_text(label.as_bytes())), Some(1))
        );
    }
}

#[test]
fn other_labels_are_blocks_without_der() {
    let text = ["EC PARAMETERS", "DH PARAMETERS", "PUBLIC KEY", "NEW CERTIFICATE REQUEST", "MESSAGE"]
        .map(block)
        .concat();
    let expected =
        [Label::EcParameters, Label::DhParameters, Label::PublicKey, Label::CertificateRequest, Label::Other];
    assert_eq!(labels(&text), expected);
    assert!(parse(text.as_bytes()).unwrap().iter().all(|block| block.der().is_empty()));
    // Not our business, so not judged: a PGP checksum, for example.
    assert_eq!(labels("-----BEGIN X-----\n=twTO\n-----END X-----\n"), [Label::Other]);
}

#[test]
fn a_body_without_its_begin_line_is_noticed() {
    let body = format!("MI{}", "A".repeat(62));
    assert_eq!(problem(format!("{}{body}\n", block("CERTIFICATE"))), (Problem::StrayBase64, Some(4)));
    assert_eq!(problem(&body), (Problem::StrayBase64, Some(1)));
}

#[test]
fn a_begin_line_cut_anywhere_is_noticed() {
    let good = block("CERTIFICATE");
    for cut in 1.."-----BEGIN CERTIFICATE-----".len() {
        let text = format!("{good}{}", &"-----BEGIN CERTIFICATE-----"[..cut]);
        assert_eq!(problem(text), (Problem::MarkerCut, Some(4)), "cut at {cut}");
    }
}

#[test]
fn files_that_are_no_pem_are_named() {
    let utf16 = |text: &str| text.encode_utf16().flat_map(u16::to_le_bytes).collect::<Vec<u8>>();
    let base64_of_pem = "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURS0tLS0tCk1BTUM=";
    for (text, expected) in [
        (b"".to_vec(), Problem::Empty),
        (b"\xef\xbb\xbf \r\n\t".to_vec(), Problem::Empty),
        (vec![0], Problem::OnlyNul),
        (vec![0; 4096], Problem::OnlyNul),
        (utf16("-----BEGIN CERTIFICATE-----"), Problem::Utf16),
        (utf16("\u{feff}-----BEGIN CERTIFICATE-----"), Problem::Utf16),
        (b"  <!DOCTYPE HTML><title>404".to_vec(), Problem::Html),
        (b"<html>".to_vec(), Problem::Html),
        (base64_of_pem.into(), Problem::Base64OfPem),
        (b"# nothing but words\n".to_vec(), Problem::NoBlock),
        (vec![0x30, 3, 2, 1, 3], Problem::Der(DerContent::Pkcs12)),
        (vec![0x30, 3, 2, 1, 0], Problem::Der(DerContent::PrivateKey)),
        (vec![0x30, 2, 0x30, 0], Problem::Der(DerContent::Certificate)),
        (vec![0x30, 2, 6, 0], Problem::Der(DerContent::Pkcs7)),
        (vec![0x30, 0x82, 3, 0xff, 1, 2], Problem::Der(DerContent::Unknown)),
    ] {
        assert_eq!(problem(&text), (expected, None), "{text:?}");
    }
    assert_eq!(problem(format!("{}\0\0", block("CERTIFICATE"))), (Problem::Nul, Some(4)));
}

#[test]
fn no_error_and_no_debug_output_quotes_the_text() {
    let secret = "c2VjcmV0c2VjcmV0";
    for text in [
        format!("-----BEGIN {secret}-----\n"),
        format!("-----BEGIN {secret} PRIVATE KEY-----\n-----END {secret} PRIVATE KEY-----\n"),
        format!("-----END {secret}-----\n"),
        format!("-----BEGIN PRIVATE KEY-----{secret}\n"),
        format!("-----BEGIN PRIVATE KEY-----\n{secret}*\n-----END PRIVATE KEY-----\n"),
        format!("-----BEGIN PRIVATE KEY-----\n{secret}\n-----END {secret}-----\n"),
        format!("-----BEGIN PRIVATE KEY-----\n{secret}\n-----END PRIVATE KEY-----\n"),
    ] {
        let result = parse(text.as_bytes());
        let output = match &result {
            Ok(blocks) => format!("{blocks:?}"),
            Err(error) => format!("{error} {error:?}"),
        };
        assert!(!output.contains("c2Vj") && !output.contains("115, 101"), "{output}");
    }
}

#[test]
fn everything_accepted_is_what_rustls_pemfile_reads_from_the_clean_text() {
    let dirty = format!(
        "\u{feff}junk\r\n{}words\r{}\n",
        block("CERTIFICATE").replace('\n', "\r\n"),
        block("PRIVATE KEY").replace('\n', "\r")
    );
    let clean = format!("{}{}", block("CERTIFICATE"), block("PRIVATE KEY"));
    let reference = rustls_pemfile::read_all(&mut clean.as_bytes()).count();
    assert_eq!(parse(dirty.as_bytes()).unwrap().len(), reference);
}

#[test]
fn one_changed_byte_never_loses_a_block() {
    let good = [block("CERTIFICATE"), block("PRIVATE KEY")].concat().into_bytes();
    for at in 0..good.len() {
        for byte in 0..=u8::MAX {
            let mut changed = good.clone();
            changed[at] = byte;
            if let Ok(blocks) = parse(&changed) {
                let text = String::from_utf8_lossy(&changed);
                assert_eq!(blocks.len(), 2, "byte {at} became {byte}: {text}");
            }
        }
    }
}

proptest::proptest! {
    #![proptest_config(proptest::test_runner::Config { failure_persistence: None, ..Default::default() })]

    /// Whatever is joined to whatever: what is accepted has one BEGIN and one END for each block.
    #[test]
    fn blocks_in_are_blocks_out(pieces in proptest::collection::vec(0..PIECES.len(), 0..12)) {
        let text: String = pieces.into_iter().map(|piece| PIECES[piece]).collect();
        let count = |marker: &str| text.matches(marker).count();
        if let Ok(blocks) = parse(text.as_bytes()) {
            proptest::prop_assert_eq!(blocks.len(), count("BEGIN"));
            proptest::prop_assert_eq!(blocks.len(), count("END"));
        }
    }
}

const PIECES: [&str; 16] = [
    "-----BEGIN CERTIFICATE-----",
    "-----END CERTIFICATE-----",
    "-----BEGIN CERTIFICATE-----\nMAMCAQE=\n-----END CERTIFICATE-----",
    "-----BEGIN PRIVATE KEY-----\r\nMAMCAQE=\r\n-----END PRIVATE KEY-----\r\n",
    "-----BEGIN X-----\n-----END X-----\n",
    "----BEGIN CERTIFICATE-----\nMAMC\n----END CERTIFICATE-----\n",
    "-----",
    "-",
    "MAMC",
    "MAMCAQE=",
    "\n",
    "\r",
    "\n\n",
    " ",
    "\u{feff}",
    "words\n",
];

/// 32 times the text may cost 320 times the time, for other programs run beside this one; if the work were
/// quadratic, it would be 1024 times.
#[test]
fn time_is_linear_in_the_size_of_the_text() {
    let adversaries: [fn(usize) -> String; 6] = [
        |size| block("CERTIFICATE").repeat(size / 60),
        |size| {
            format!("-----BEGIN CERTIFICATE-----\n{}\n-----END CERTIFICATE-----\n", "A\n".repeat(size / 2))
        },
        |size| "-".repeat(size),
        |size| "-----BEGIN \r".repeat(size / 12),
        |size| "\u{2014}".repeat(size / 3),
        |size| format!("-----BEGIN {}-----\n", "X ".repeat(size / 2)),
    ];
    for (number, adversary) in adversaries.into_iter().enumerate() {
        let time = |size: usize| {
            let text = adversary(size);
            let run = || {
                let start = std::time::Instant::now();
                drop(parse(text.as_bytes()));
                start.elapsed()
            };
            (0..3).map(|_| run()).min().unwrap_or_default()
        };
        let (small, large) = (time(1 << 13), time(1 << 18));
        assert!(large < small * 320, "{number}: {small:?}, 32 times: {large:?}");
    }
}
