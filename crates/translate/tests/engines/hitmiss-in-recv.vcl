# difference: hitmiss-scope
# compiles on: 7.1
vcl 4.1;
backend none none;
sub vcl_recv {
  if (req.is_hitmiss) { return (pass); }
}
