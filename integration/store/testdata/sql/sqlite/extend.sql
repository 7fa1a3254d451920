UPDATE "app_message_claims" SET leased_until = CAST(unixepoch('subsec') * 1000000 AS INTEGER) + 30000000 WHERE owner = '0192a4b6-c8d0-7e1f-8a2b-3c4d5e6f7081' RETURNING id;
