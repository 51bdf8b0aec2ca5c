# difference: xid-is-a-number
# compiles on: 7.7, 9.0
vcl 4.1;
backend none none;
sub vcl_recv {
  if (req.xid > 1) { return (pass); }
}
