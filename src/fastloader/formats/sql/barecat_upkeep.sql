-- What is made once all rows are there: indexes, and the triggers by which Barecat keeps the statistics of directories right
-- when it changes an archive later. They work while config says use_triggers = 1; those on dirs call themselves up the tree.

CREATE UNIQUE INDEX idx_files_path ON files (path);
CREATE UNIQUE INDEX idx_dirs_path ON dirs (path);
CREATE INDEX idx_files_parent ON files (parent);
CREATE INDEX idx_dirs_parent ON dirs (parent);
CREATE INDEX idx_files_shard_offset ON files (shard, offset);

CREATE TRIGGER prevent_file_as_dir BEFORE INSERT ON files
WHEN (SELECT value_int FROM config WHERE key = 'use_triggers') = 1
BEGIN
    SELECT RAISE(ABORT, 'Path already exists as directory') WHERE EXISTS (SELECT 1 FROM dirs WHERE path = NEW.path);
END;

CREATE TRIGGER prevent_dir_as_file BEFORE INSERT ON dirs
WHEN (SELECT value_int FROM config WHERE key = 'use_triggers') = 1
BEGIN
    SELECT RAISE(ABORT, 'Path already exists as file') WHERE EXISTS (SELECT 1 FROM files WHERE path = NEW.path);
END;

CREATE TRIGGER add_file AFTER INSERT ON files
WHEN (SELECT value_int FROM config WHERE key = 'use_triggers') = 1
BEGIN
    INSERT INTO dirs (path, num_files, num_files_tree, size_tree, mtime_ns)
    VALUES (NEW.parent, 1, 1, NEW.size, CAST((julianday('now') - 2440587.5) * 86400.0 * 1e9 AS INTEGER))
    ON CONFLICT (path) DO UPDATE SET
        num_files = num_files + 1, num_files_tree = num_files_tree + 1, size_tree = size_tree + excluded.size_tree,
        mtime_ns = excluded.mtime_ns;
END;

CREATE TRIGGER del_file AFTER DELETE ON files
WHEN (SELECT value_int FROM config WHERE key = 'use_triggers') = 1
BEGIN
    UPDATE dirs SET
        num_files = num_files - 1, num_files_tree = num_files_tree - 1, size_tree = size_tree - OLD.size,
        mtime_ns = CAST((julianday('now') - 2440587.5) * 86400.0 * 1e9 AS INTEGER)
    WHERE path = OLD.parent;
END;

CREATE TRIGGER move_file AFTER UPDATE OF path ON files
WHEN NEW.parent != OLD.parent AND (SELECT value_int FROM config WHERE key = 'use_triggers') = 1
BEGIN
    UPDATE dirs SET
        num_files = num_files + 1, num_files_tree = num_files_tree + 1, size_tree = size_tree + NEW.size,
        mtime_ns = CAST((julianday('now') - 2440587.5) * 86400.0 * 1e9 AS INTEGER)
    WHERE path = NEW.parent;
    UPDATE dirs SET
        num_files = num_files - 1, num_files_tree = num_files_tree - 1, size_tree = size_tree - OLD.size,
        mtime_ns = CAST((julianday('now') - 2440587.5) * 86400.0 * 1e9 AS INTEGER)
    WHERE path = OLD.parent;
END;

CREATE TRIGGER resize_file AFTER UPDATE OF size ON files
WHEN NEW.parent = OLD.parent AND (SELECT value_int FROM config WHERE key = 'use_triggers') = 1
BEGIN
    UPDATE dirs SET size_tree = size_tree + NEW.size - OLD.size WHERE path = OLD.parent;
END;

CREATE TRIGGER add_subdir AFTER INSERT ON dirs
WHEN (SELECT value_int FROM config WHERE key = 'use_triggers') = 1
BEGIN
    INSERT INTO dirs (path, num_subdirs, size_tree, num_files_tree, mtime_ns)
    VALUES (NEW.parent, 1, NEW.size_tree, NEW.num_files_tree,
            CAST((julianday('now') - 2440587.5) * 86400.0 * 1e9 AS INTEGER))
    ON CONFLICT (path) DO UPDATE SET
        num_subdirs = num_subdirs + 1, size_tree = size_tree + excluded.size_tree,
        num_files_tree = num_files_tree + excluded.num_files_tree, mtime_ns = excluded.mtime_ns;
END;

CREATE TRIGGER del_subdir AFTER DELETE ON dirs
WHEN (SELECT value_int FROM config WHERE key = 'use_triggers') = 1
BEGIN
    UPDATE dirs SET
        num_subdirs = num_subdirs - 1, size_tree = size_tree - OLD.size_tree,
        num_files_tree = num_files_tree - OLD.num_files_tree,
        mtime_ns = CAST((julianday('now') - 2440587.5) * 86400.0 * 1e9 AS INTEGER)
    WHERE path = OLD.parent;
END;

CREATE TRIGGER move_subdir AFTER UPDATE OF path ON dirs
WHEN NEW.parent != OLD.parent AND (SELECT value_int FROM config WHERE key = 'use_triggers') = 1
BEGIN
    UPDATE dirs SET
        num_subdirs = num_subdirs - 1, size_tree = size_tree - OLD.size_tree,
        num_files_tree = num_files_tree - OLD.num_files_tree,
        mtime_ns = CAST((julianday('now') - 2440587.5) * 86400.0 * 1e9 AS INTEGER)
    WHERE path = OLD.parent;
    UPDATE dirs SET
        num_subdirs = num_subdirs + 1, size_tree = size_tree + NEW.size_tree,
        num_files_tree = num_files_tree + NEW.num_files_tree,
        mtime_ns = CAST((julianday('now') - 2440587.5) * 86400.0 * 1e9 AS INTEGER)
    WHERE path = NEW.parent;
END;

CREATE TRIGGER resize_dir AFTER UPDATE OF size_tree, num_files_tree ON dirs
WHEN NEW.parent = OLD.parent AND (NEW.size_tree != OLD.size_tree OR NEW.num_files_tree != OLD.num_files_tree)
    AND (SELECT value_int FROM config WHERE key = 'use_triggers') = 1
BEGIN
    UPDATE dirs SET
        size_tree = size_tree + NEW.size_tree - OLD.size_tree,
        num_files_tree = num_files_tree + NEW.num_files_tree - OLD.num_files_tree
    WHERE path = OLD.parent;
END;
