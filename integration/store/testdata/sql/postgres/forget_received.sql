DELETE FROM "app_inbox_messages" WHERE receiver = 'from-orders' AND hash IN (
  SELECT i.hash FROM "app_inbox_messages" i WHERE i.receiver = 'from-orders' AND i.received_at < statement_timestamp() + -3600000000 * interval '1 microsecond' ORDER BY i.received_at LIMIT 1000 FOR UPDATE SKIP LOCKED);
