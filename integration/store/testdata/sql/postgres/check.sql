SELECT pg_is_in_recovery();

SELECT current_setting('standard_conforming_strings');
