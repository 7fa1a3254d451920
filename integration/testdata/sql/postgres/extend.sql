UPDATE "app_message_claims" SET leased_until = statement_timestamp() + 30000000 * interval '1 microsecond' WHERE owner = '0192a4b6-c8d0-7e1f-8a2b-3c4d5e6f7081' RETURNING id;
