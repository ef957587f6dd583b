"""Whether files can be written, asked before what is written is made."""

import errno
import os
from pathlib import Path

import pytest

from melforge.common.errors import InputError
from melforge.common.files import (
    draft_in,
    read_text,
    require_writable_file,
    require_writable_folder,
    written_whole,
)


def test_a_folder_may_be_made_and_a_files_folder_must_be_there(tmp_path):
    for folder in (tmp_path, tmp_path / "new" / "one"):
        require_writable_folder(folder)
    require_writable_file(tmp_path / "new.wav")
    with pytest.raises(FileNotFoundError, match=r"cannot write .*/a\.wav: the folder .*/new does not exist"):
        require_writable_file(tmp_path / "new" / "a.wav")
    assert not list(tmp_path.iterdir())


def test_a_full_disk_is_named_by_the_folder_and_a_draft_leaves_nothing(tmp_path):
    folder = tmp_path / "new" / "one"
    with pytest.raises(OSError, match=f"cannot write {folder}: No space left"), draft_in(folder) as draft:
        (draft / "half").touch()
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))  # as libraries in C say it, without a name
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("begin", ["%PDF-1.7", "{\\rtf1\\ansi", "PK\x03\x04"])
def test_a_document_is_no_text(tmp_path, begin):
    (tmp_path / "a.txt").write_text(f"{begin} and what else can be read as UTF-8")
    with pytest.raises(InputError, match=r"a\.txt is a document, no plain text: save it as text in UTF-8"):
        read_text(tmp_path / "a.txt")


def test_folders_and_files_are_not_taken_for_each_other(tmp_path):
    (tmp_path / "file").touch()
    require_writable_file(tmp_path / "file")
    with pytest.raises(NotADirectoryError):
        require_writable_folder(tmp_path / "file" / "new")
    with pytest.raises(FileNotFoundError, match=r"cannot write .*/file/a: .*/file is a file"):
        require_writable_file(tmp_path / "file" / "a")
    with pytest.raises(IsADirectoryError, match="is a folder: give a file name"):
        require_writable_file(tmp_path)


def test_a_folder_that_lets_nobody_write_is_refused_but_not_its_devices(tmp_path, monkeypatch):
    monkeypatch.setattr("os.access", lambda path, mode: False)  # root may always
    for refuse, path in ((require_writable_folder, tmp_path), (require_writable_file, tmp_path / "a.wav")):
        with pytest.raises(PermissionError, match="Permission denied"):
            refuse(path)
    require_writable_file(Path("/dev/null"))


@pytest.mark.parametrize("umask", [0o022, 0o027])
def test_a_file_may_be_read_by_those_whom_the_umask_lets(umask, tmp_path):
    before = os.umask(umask)
    try:
        with written_whole(tmp_path / "weights") as file:
            file.unlink()
            os.close(os.open(file, os.O_CREAT | os.O_WRONLY, 0o600))  # as safetensors does
    finally:
        os.umask(before)
    assert (tmp_path / "weights").stat().st_mode & 0o777 == 0o666 & ~umask
    assert [path.name for path in tmp_path.iterdir()] == ["weights"]
