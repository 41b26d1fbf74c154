"""Rates, sizes and times: read as tc, iperf3 and fio write them, printed as a person reads them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fabric.units import (
    exact,
    exact_in,
    format_apart,
    format_bandwidth,
    format_change,
    format_decimal,
    format_rate,
    format_size,
    format_time,
    parse_rate_bps,
    parse_size_bytes,
    parse_time_s,
)


@pytest.mark.parametrize(
    ("text", "rate_bps"),
    [
        ("9600 bit/s", 9600),
        ("64 kbit/s", 64_000),
        ("20 Mbit/s", 20_000_000),
        ("2.5 Gbit/s", 2_500_000_000),
        ("200Gbit/s", 200_000_000_000),
        ("  1_600  Gbit/s ", 1_600_000_000_000),
        ("1 Tbit/s", 10**12),
        (12_345, 12_345),
        (-5, -5),  # The config's limits refuse it, with the key's name.
    ],
)
def test_rates_are_bits_per_second_with_decimal_prefixes(text: str | int, rate_bps: int) -> None:
    assert parse_rate_bps(text) == rate_bps


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("512 B", 512),
        ("4 KiB", 4096),
        ("4 KB", 4000),
        ("1.5 MiB", 1_572_864),
        ("1 MB", 10**6),
        ("2 GiB", 2**31),
        (7, 7),
    ],
)
def test_sizes_are_bytes_with_binary_and_decimal_prefixes(text: str | int, size_bytes: int) -> None:
    assert parse_size_bytes(text) == size_bytes


@pytest.mark.parametrize(
    ("text", "time_s"),
    [
        ("5s", 5.0),
        ("50 ms", 0.05),
        ("20 us", 20e-6),
        ("20 µs", 20e-6),
        ("2 min", 120.0),
        ("7 d", 604_800.0),
        (3, 3.0),
        (0.25, 0.25),
    ],
)
def test_times_are_seconds(text: str | float, time_s: float) -> None:
    assert parse_time_s(text) == pytest.approx(time_s)


@pytest.mark.parametrize(
    "text", ["", "fast", "nan", "NaN Mbit/s", "-20 Mbit/s", "inf", "1e3 Mbit/s", ".5 Mbit/s", "20 Mbit/s each"]
)
def test_text_that_is_no_quantity_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(ValueError) as refused:
        parse_rate_bps(text)
    assert str(refused.value) == f"{text!r} is not a rate; write it like '20 Mbit/s'"


@pytest.mark.parametrize(
    ("parse", "text", "message"),
    [
        (parse_size_bytes, "-4 MiB", "'-4 MiB' is not a size; write it like '4 MiB'"),
        (parse_time_s, "soon", "'soon' is not a time; write it like '50 ms'"),
        (
            parse_rate_bps,
            "20 Mbps",
            "'20 Mbps': unknown unit 'Mbps' of a rate; use one of bit/s, kbit/s, Mbit/s, Gbit/s, Tbit/s",
        ),
        (
            parse_rate_bps,
            "20",
            "'20': a rate without a unit; use one of bit/s, kbit/s, Mbit/s, Gbit/s, Tbit/s",
        ),
        (
            parse_size_bytes,
            "4 mb",
            "'4 mb': unknown unit 'mb' of a size; use one of B, KB, MB, GB, KiB, MiB, GiB",
        ),
        (parse_time_s, "5 y", "'5 y': unknown unit 'y' of a time; use one of s, ms, us, µs, min, h, d"),
        (parse_rate_bps, None, "None is not a rate; write it like '20 Mbit/s'"),
        (parse_rate_bps, 2.5, "2.5 is not a rate; write it like '20 Mbit/s'"),
        (parse_size_bytes, ["1 B"], "['1 B'] is not a size; write it like '4 MiB'"),
        (parse_size_bytes, True, "True is not a size; write it like '4 MiB'"),
        (parse_time_s, None, "None is not a time; write it like '50 ms'"),
        (parse_time_s, False, "False is not a time; write it like '50 ms'"),
    ],
)
def test_a_refusal_says_what_to_write(parse: object, text: object, message: str) -> None:
    assert callable(parse)
    with pytest.raises(ValueError) as refused:
        parse(text)
    assert str(refused.value) == message


@pytest.mark.parametrize(
    ("rate_bps", "text"),
    [
        (0, "0 bit/s"),
        (1, "1 bit/s"),
        (999, "999 bit/s"),
        (20_000_000, "20 Mbit/s"),
        (12_345_678, "12.3 Mbit/s"),
        (999_700_000, "1000 Mbit/s"),
        (200e9, "200 Gbit/s"),
        (5_000e12, "5000 Tbit/s"),
    ],
)
def test_rates_are_printed_with_three_digits(rate_bps: float, text: str) -> None:
    assert format_rate(rate_bps) == text


@pytest.mark.parametrize(
    ("size_bytes", "text"),
    [(0, "0 B"), (999.7, "1000 B"), (1023, "1023 B"), (1024, "1 KiB"), (256 * 1024, "256 KiB"), (4 * 2**20, "4 MiB")],
)
def test_sizes_are_printed_in_binary_units(size_bytes: float, text: str) -> None:
    assert format_size(size_bytes) == text


@pytest.mark.parametrize(
    ("time_s", "text"),
    [(0, "0 us"), (12.3e-6, "12.3 us"), (0.0015, "1.5 ms"), (0.9999, "1000 ms"), (90, "90 s"), (-0.002, "-2 ms")],
)
def test_times_are_printed_in_the_unit_they_fill(time_s: float, text: str) -> None:
    assert format_time(time_s) == text


@pytest.mark.parametrize(
    ("bytes_per_s", "text"),
    [(0, "0.000 MB/s"), (167e3, "0.167 MB/s"), (9.9e8, "990.000 MB/s"), (1.50305e11, "150.305 GB/s")],
)
def test_bandwidths_are_printed_in_two_units_only(bytes_per_s: float, text: str) -> None:
    assert format_bandwidth(bytes_per_s) == text


@given(st.integers(1, 999), st.sampled_from([1, 10**3, 10**6, 10**9, 10**12]))
def test_a_printed_rate_reads_as_itself(number: int, unit: int) -> None:
    assert parse_rate_bps(format_rate(number * unit)) == number * unit


@given(st.integers(1, 1023), st.sampled_from([1, 2**10, 2**20, 2**30]))
def test_a_printed_size_of_whole_units_reads_as_itself(number: int, unit: int) -> None:
    assert parse_size_bytes(format_size(number * unit)) == number * unit


@given(st.floats(1e-6, 1e6))
def test_a_printed_time_reads_as_itself_to_three_digits(time_s: float) -> None:
    assert parse_time_s(format_time(time_s)) == pytest.approx(time_s, rel=5e-3)


@pytest.mark.parametrize(("number", "text"), [(28, "28"), (168_164, "168 k"), (2_451_285, "2.45 M"), (0, "0")])
def test_numbers_are_told_to_three_digits(number: float, text: str) -> None:
    assert format_decimal(number) == text


@pytest.mark.parametrize(
    ("number", "text"), [(0.2, "0.2"), (1.0, "1"), (1 / 16, "0.0625"), (10, "10"), (0.1234567, "0.1234567"), (0, "0")]
)
def test_a_number_in_a_name_has_the_digits_that_it_needs(number: float, text: str) -> None:
    assert exact(number) == text


@given(st.floats(0, 1e6), st.floats(0, 1e6))
def test_numbers_that_differ_have_names_that_differ(one: float, other: float) -> None:
    assert (exact(one) == exact(other)) == (one == other)
    assert float(exact(one)) == one


@pytest.mark.parametrize("text", ["9" * 400 + " s", "9" * 5000 + " min", 10**400])
def test_a_time_beyond_all_numbers_is_refused(text: str | int) -> None:
    with pytest.raises(ValueError, match="digits is more than anything has; lower it"):
        parse_time_s(text)


@pytest.mark.parametrize(
    ("time", "milliseconds"),
    [("0.9 ms", "0.9"), ("200 ms", "200"), ("1.5 s", "1500"), ("2000 s", "2000000"), ("1.2345678 ms", "1.2345678")],
)
def test_a_time_in_a_name_has_as_many_digits_as_it_needs(time: str, milliseconds: str) -> None:
    assert exact_in(parse_time_s(time), 1000) == milliseconds
    assert exact_in(0.0, 1000) == "0"


@given(st.floats(1e-9, 1e6), st.integers(10**6, 10**12))
def test_times_that_differ_have_names_that_differ(time_s: float, parts: int) -> None:
    assert exact_in(time_s, 10**6) != exact_in(time_s * (1 + 1 / parts), 10**6)


@pytest.mark.parametrize(
    ("fraction", "digits", "text"),
    [(0.0412, 1, "+4.1%"), (-0.1, 1, "-10.0%"), (0.0, 1, "0.0%"), (-0.0004, 1, "0.0%"), (0.0004, 2, "+0.04%")],
)
def test_what_rounds_to_no_change_has_no_sign(fraction: float, digits: int, text: str) -> None:
    assert format_change(fraction, digits) == text


def test_nothing_is_printed_as_less_than_nothing() -> None:
    assert (format_time(-0.0), format_rate(-0.0), format_size(-0.0)) == ("0 us", "0 bit/s", "0 B")
    assert format_bandwidth(-1.0) == "0.000 MB/s"
    assert format_time(-1.5e-3) == "-1.5 ms"


def test_a_value_and_its_limit_differ_where_rounding_would_hide_it() -> None:
    assert format_apart(7_000, 8_000, format_rate) == ("7 kbit/s", "8 kbit/s")
    assert format_apart(7_999, 8_000, format_rate) == ("7999 bit/s", "8000 bit/s")
    assert format_apart(2**20 + 1, 2**20, format_size) == ("1048577 B", "1048576 B")
    assert format_apart(1.0001, 1.0, format_time) == ("1.0001 s", "1.0 s")
