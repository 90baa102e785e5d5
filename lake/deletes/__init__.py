"""Row deletes by position: position delete files of format version 2, deletion vectors of version 3."""
