"""What holds of every kind of file that is imported."""

from __future__ import annotations

from pathlib import Path

import pytest

from hetplan.errors import InputError
from hetplan.registry import IMPORTERS, importers

SPOILT = {"nothing": b"", "half": b"{", "no text": b"\xff\xfe\x00", "one line": b"a,b\n"}


@pytest.mark.parametrize("kind", IMPORTERS)
def test_what_cannot_be_read_is_refused_with_the_file_named(kind: str, tmp_path: Path) -> None:
    for name, data in SPOILT.items():
        (tmp_path / name).write_bytes(data)
    for name in (*SPOILT, "absent", "."):
        with pytest.raises((InputError, OSError)) as caught:
            importers()[kind](tmp_path / name)
        assert str(tmp_path / name) in str(caught.value)


@pytest.mark.parametrize("gpus", ["none", "0", "inf"])
def test_a_number_of_gpus_that_is_none_is_refused(gpus: str, tmp_path: Path) -> None:
    head = "model,hardware,tensor_parallel,prompt_size,batch_size,token_size,prompt_time,token_time,e2e_time"
    (tmp_path / "rows.csv").write_text(f"{head}\nm,h,{gpus},100,1,10,5,1,14\n")
    with pytest.raises(InputError, match="line 2"):
        importers()["sageserve"](tmp_path / "rows.csv")
