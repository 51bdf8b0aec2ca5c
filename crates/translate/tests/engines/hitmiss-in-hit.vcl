# difference: hitmiss-scope
# compiles on: 7.1
vcl 4.1;
backend none none;
sub vcl_hit {
  if (req.is_hitmiss) { return (pass); }
}
