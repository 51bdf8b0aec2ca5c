# difference: xid-is-a-string
# compiles on: 7.1
vcl 4.1;
backend none none;
sub vcl_recv {
  if (req.xid == "1") { return (pass); }
}
