-- What the clock said at the last start, for each boot of a machine: a later start tells by it that the clock has jumped.
CREATE TABLE clocks (
    boot TEXT PRIMARY KEY,
    wall BIGINT NOT NULL,          -- microseconds since 1970, by the clock …
    uptime BIGINT NOT NULL         -- … when the machine had run for so many microseconds
);
