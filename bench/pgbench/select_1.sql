-- What does the shortest statement cost? Every other statement has this cost, too.
SELECT 1;
