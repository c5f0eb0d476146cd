-- What does any prepared statement cost, with no work behind it?
SELECT 1;
