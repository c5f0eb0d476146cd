-- What does the shortest statement cost? Every other one pays this, too.
SELECT 1;
