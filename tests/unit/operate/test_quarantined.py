from __future__ import annotations

from operate.quarantined import hexdump


def test_a_dump_shows_offset_bytes_and_text() -> None:
    lines = list(hexdump(b"\x00\x00\x00\x00\x07note \xc3\x9f and more", 1024))
    assert lines == [
        "000000  00 00 00 00 07 6e 6f 74 65 20 c3 9f 20 61 6e 64  .....note .. and",
        "000010  20 6d 6f 72 65                                    more",
    ]
    assert list(hexdump(b"", 10)) == []


def test_a_long_dump_says_what_it_leaves_out() -> None:
    lines = list(hexdump(bytes(100), 20))
    assert [line[:6] for line in lines] == ["000000", "000010", "and 80"]
    assert lines[1].split("  ")[1] == "00 00 00 00"
